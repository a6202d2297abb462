#pragma once

// The whole LibTorch API. Python calls the same operators as torch.ops.keel.*.

#include "keel/torch/affine.h"
#include "keel/torch/eigh.h"
#include "keel/torch/generalized.h"
#include "keel/torch/kabsch.h"
#include "keel/torch/layer_matrix.h"
#include "keel/torch/moments.h"
#include "keel/torch/nn.h"
#include "keel/torch/partial.h"
#include "keel/torch/polar.h"
#include "keel/torch/procrustes.h"
#include "keel/torch/singular.h"
#include "keel/torch/spectral.h"
#include "keel/torch/svd.h"
#include "keel/torch/threads.h"
#include "keel/torch/whiten.h"
#include "keel/version.h"
