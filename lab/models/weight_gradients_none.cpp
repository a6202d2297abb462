#include "lab/models/weight_gradients.h"

namespace keel::lab {

std::shared_ptr<WeightGradients> make_weight_gradients() { return nullptr; }

}  // namespace keel::lab
