// What the arithmetic offers; level.cpp fills it in once for each instruction level.

#pragma once

#include "bank.hpp"
#include "block.hpp"
#include "fpelm.hpp"
#include "judge.hpp"
#include "oselm.hpp"

namespace onlad {

template <class T>
struct Operations {
    double (*score)(Model<T>&, double a);       // of x, and nothing learned
    double (*update)(Model<T>&, double a);      // the same score, then learn x
    bool (*learn_scored)(Model<T>&, double a);  // learn x right after its score
    bool (*take_back)(Model<T>&);               // unlearn x; false: it was never in
    double (*update_directional)(Model<T>&, double phi);
    double (*fp_elm_score)(Model<T>&, double ridge, T* U);
    void (*fp_elm_learn)(Model<T>&, double a);
    void (*measure)(Model<T>&);  // trace(P) from S
    const MonitorOperations* monitor;
    void (*update_block)(Model<T>&, const T* X, const T* XA, std::size_t samples, const double* a,
                         T* beta, const BlockMemory<T>&, double* losses, double* leverages);
    void (*bank_rows)(Model<T>&, const BankRows<T>&, const BankMemory<T>&);
};

template <class T>
const Operations<T>& operations();  // of the level that runs

}  // namespace onlad
