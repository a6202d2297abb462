#pragma once

// The ways in which eigh solves a batch. eigh.cu chooses.

#include "keel/eigh.h"

namespace keel::cuda {

/// For n <= 4, one thread per matrix. For batches that are large enough to fill the GPU this way.
template <typename T>
void eigh_tiny(Matrices<const T> matrices, T* values, Matrices<T> vectors, EighOrder order,
               EighStatus* status, const Stream& stream);

/// eigh in four kernels, for matrices that fit into the registers of one multiprocessor but not
/// into its shared memory.
template <typename T>
void eigh_middle(Matrices<const T> matrices, T* values, Matrices<T> vectors, EighOrder order,
                 EighStatus* status, const Stream& stream);

/// eigh with each matrix spread over several multiprocessors, in four launches plus five for each
/// level of merges.
template <typename T>
void eigh_wide(Matrices<const T> matrices, T* values, Matrices<T> vectors, EighOrder order,
               EighStatus* status, const Stream& stream);

/// eigh of complex matrices, each in one block or a part of one.
template <typename T>
void eigh_hermitian(Matrices<const T> matrices, RealOf<T>* values, Matrices<T> vectors,
                    EighOrder order, EighStatus* status, const Stream& stream);

/// eigh by cuSOLVER's batched solver, for matrices that the other kernels cannot hold. Vectors that
/// it returns not orthonormal are corrected. Without memory for vectors it computes the values alone.
template <typename T>
void eigh_cusolver(Matrices<const T> matrices, RealOf<T>* values, Matrices<T> vectors,
                   EighOrder order, EighStatus* status, const Stream& stream);

}  // namespace keel::cuda
