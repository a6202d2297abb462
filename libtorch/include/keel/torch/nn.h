#pragma once

#include "keel/torch/nn/follow.h"
#include "keel/torch/nn/pca_denoising.h"
#include "keel/torch/nn/pca_whitening.h"
#include "keel/torch/nn/recalibrate.h"
#include "keel/torch/nn/zca_whitening.h"
