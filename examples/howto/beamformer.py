"""A beamformer: masks learned through the generalised eigenvectors of complex covariances."""
import torch
from torch import nn

import keel

MICROPHONES, FREQUENCIES, FRAMES = 6, 24, 120


def gauss(*shape):
    return torch.randn(*shape, dtype=torch.complex64)


def scene(room):
    """Spectra (frequency, microphone, frame) of a talker who pauses, and of all that is not the talker."""
    talker, noises = room
    active = (torch.rand(FREQUENCIES, FRAMES) < 0.3) * (torch.rand(FRAMES) < 0.6)
    speech = talker.unsqueeze(-1) * (3 * active * gauss(FREQUENCIES, FRAMES)).unsqueeze(-2)
    noise = noises @ gauss(FREQUENCIES, 3, FRAMES) + 0.1 * gauss(FREQUENCIES, MICROPHONES, FRAMES)
    working = torch.arange(MICROPHONES) < MICROPHONES - 1  # somebody unplugged the last one
    return speech * working.unsqueeze(-1), noise * working.unsqueeze(-1)


def covariance(x, weight=1.0):
    return (weight * x) @ x.mH / FRAMES


def by_torch(speech, noise):
    """x x^H of the leading eigenvector of speech x = l noise x."""
    factor = torch.linalg.cholesky(noise)
    half = torch.linalg.solve_triangular(factor, speech, upper=False)
    inside = torch.linalg.solve_triangular(factor, half.mH, upper=False)
    x = torch.linalg.solve_triangular(factor.mH, torch.linalg.eigh(inside)[1][..., -1:], upper=True)
    return x @ x.mH


def by_keel(speech, noise):
    return keel.generalized_projector(speech, noise, 1, "masked", rtol=1e-5)


def gain(beam, speech, noise):
    """The mean signal-to-noise ratio in dB, of beams x x^H: no phase of x appears in it."""
    power = [(beam * covariance(part).mT).sum((-2, -1)).real for part in (speech, noise)]
    return (10 * (power[0] / power[1]).log10()).mean()


def beam_of(model, leading, speech, noise):
    heard = speech + noise
    loud = heard.abs().square().mean(-2, keepdim=True).log() - 2
    mask = (loud / 4 + model(loud.unsqueeze(-1)).squeeze(-1)).sigmoid()
    return leading(covariance(heard, mask), covariance(heard, 1 - mask))


def train(leading, steps=150):
    torch.manual_seed(0)
    room = gauss(FREQUENCIES, MICROPHONES), gauss(FREQUENCIES, MICROPHONES, 3)
    model = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    found = []
    for step in range(1, steps + 1):
        speech, noise = scene(room)
        try:
            found.append(gain(beam_of(model, leading, speech, noise), speech, noise))
        except torch.linalg.LinAlgError:
            return f"error in step {step}: not positive definite"
        optimiser.zero_grad()
        (-found[-1]).backward()
        optimiser.step()
    return f"{found[0]:.0f} dB untrained, {torch.stack(found[-20:]).mean():.0f} dB after {steps} steps"


print("torch.linalg.cholesky and eigh:", train(by_torch))
print("keel.generalized_projector:", train(by_keel))
