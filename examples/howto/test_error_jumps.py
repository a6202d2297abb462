"""My test error jumps: running statistics lag behind the weights. Follow the weights, or recalibrate."""
import copy

import torch
from torch import nn

import keel


def stripes(count):
    """Noisy 8 x 8 images in three correlated colours; the class is the direction of faint stripes."""
    labels = torch.randint(0, 2, (count,))
    wave = torch.tensor([1.0, -1.0]).repeat(4).expand(8, 8)
    faint = torch.stack([wave, wave.T])[labels].unsqueeze(1)
    brightness = 10 * torch.randn(count, 1, 1, 1)
    signal = 0.1 * torch.tensor([1.0, 0.0, -1.0]).view(1, 3, 1, 1) * faint
    return brightness + signal + 0.1 * torch.randn(count, 3, 8, 8), labels


def network():
    norm = keel.nn.ZcaWhitening(16, rank=keel.FullRank())
    head = nn.Sequential(nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 2))
    return nn.Sequential(nn.Conv2d(3, 16, 3), norm, *head)


def error(model):
    images, labels = test
    return 100 * (model.eval()(images).argmax(1) != labels).float().mean()


torch.manual_seed(0)
test = stripes(1000)
model = network()
followed = copy.deepcopy(model)
print(keel.nn.follow(followed))

print("step   as it is   followed   recalibrated")
optimisers = [torch.optim.SGD(m.parameters(), lr=0.3, momentum=0.9) for m in (model, followed)]
for step in range(1, 41):
    images, labels = stripes(64)
    for each, optimiser in zip((model, followed), optimisers):
        optimiser.zero_grad()
        nn.functional.cross_entropy(each.train()(images), labels).backward()
        optimiser.step()
    if step % 10 == 0:
        recalibrated = copy.deepcopy(model)
        keel.nn.recalibrate(recalibrated, [stripes(64)[0] for _ in range(10)])
        errors = [error(each) for each in (model, followed, recalibrated)]
        print(f"{step:4} {errors[0]:9.0f}% {errors[1]:9.0f}% {errors[2]:13.0f}%")
