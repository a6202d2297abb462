#pragma once

// The ways in which svd solves a batch. svd.cu chooses.

#include "cuda/svd/layouts.h"
#include "keel/svd.h"

namespace keel::cuda {

/// For 0 < min(m, n) and max(m, n) <= 4: one thread per matrix.
template <typename T>
void svd_tiny(Rectangles<const T> matrices, T* values, Rectangles<T> left, Rectangles<T> right,
              SvdStatus* status, const Stream& stream);

template <typename T>
struct PolishResults;
template <typename T>
struct PolishPause;

/// The first three launches of svd_polish_block in one. Results are the same, bit by bit, as those of separate launches
/// with this many threads per matrix.
template <typename T>
void svd_in_one_launch(Rectangles<const T> matrices, const PolishLayout<T>& layout, int threads,
                       const PolishPause<T>& pause, const PolishResults<T>& results,
                       const Stream& stream);

/// Solves matrices that are not steep. Marks the others in `unsolved` and leaves their results unwritten.
template <typename T>
void svd_polish_block(Rectangles<const T> matrices, T* values, Rectangles<T> left,
                      Rectangles<T> right, SvdStatus* status, bool* unsolved, bool in_one_launch,
                      const Stream& stream);

/// Like svd_polish_block, in global memory.
template <typename T>
void svd_polish_grid(Rectangles<const T> matrices, T* values, Rectangles<T> left,
                     Rectangles<T> right, SvdStatus* status, bool* unsolved, const Stream& stream);

/// For 0 < min(m, n) <= 512: one block per matrix, or one cluster of blocks. `unsolved` is null, or says which
/// matrices to solve. The others' results stay unchanged.
template <typename T>
void svd_jacobi(Rectangles<const T> matrices, T* values, Rectangles<T> left, Rectangles<T> right,
                SvdStatus* status, const bool* unsolved, const Stream& stream);

/// Tall or wide matrices, in slices.
template <typename T>
void svd_slices(Rectangles<const T> matrices, T* values, Rectangles<T> left, Rectangles<T> right,
                SvdStatus* status, const Stream& stream);

/// By svd_polish_grid where it holds the matrices. What it leaves: one matrix after the other, by cuSOLVER's polar
/// decomposition, or by its QR iteration if that would change the matrix.
/// Waits for the device. Throws while a graph is captured.
template <typename T>
void svd_cusolver(Rectangles<const T> matrices, T* values, Rectangles<T> left, Rectangles<T> right,
                  SvdStatus* status, const Stream& stream);

}  // namespace keel::cuda
