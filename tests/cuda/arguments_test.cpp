// The same arguments, given to CUDA's stages. Needs no GPU.

#define KEEL_BACKEND cuda
#include "../core/arguments_test.cpp"
