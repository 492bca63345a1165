/* The split test of koncord.kernels.splitting in C: rows of several components, centered, and EM of two children each.

   The NumPy form in centered.py is the reference, and is used where this was not built. Sums are taken in double
   precision and in a fixed order; nothing here asks the compiler to reorder arithmetic (no -ffast-math).

   Rows lie in blocks of BLOCK rows, column after column within a block, so that a step over rows is a step over
   neighbors in memory. The last block of a component is padded with zeros to a multiple of PADDING rows. A block is
   read once in a pass of EM: responsibilities and the sums that they weight are taken while it is in the cache. Blocks
   of a very large component are not kept: each is gathered anew when it is read.

   The loops over rows are compiled for each kind of processor (_kernel.h). All give the same numbers. */

#ifndef NAMED

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 136 /* a multiple of PADDING; columns of a block do not fall into the same lines of the cache */
#define PADDING 8
#define LANES 8 /* of a vector */
#define AHEAD 24 /* rows that are asked for before they are gathered: they may lie anywhere in the table */
#define MOST_ODDS 700.0 /* beyond, exp leaves the range of a double */
#define FADED_MASS 1e-9 /* as in centered.py */

/* LANES numbers at once, wherever they lie in memory; compilers cut them to what the processor has. */
typedef double lanes __attribute__((vector_size(8 * LANES), aligned(8), may_alias));
typedef int64_t whole __attribute__((vector_size(8 * LANES), aligned(8), may_alias));
typedef double four __attribute__((vector_size(32), aligned(8), may_alias));
typedef int64_t order __attribute__((vector_size(32)));

/* The rows of one component: indices into a table, and their blocks where these are kept (else a block to fill). */
typedef struct {
    const double *x, *mean;
    int64_t *rows;
    Py_ssize_t n, d;
    int is_kept;
    double *z, *squares;
} component;

static Py_ssize_t padded(Py_ssize_t n) { return (n + PADDING - 1) / PADDING * PADDING; }

/* M-step and the log odds that follow: `maximize` and `log_odds` of centered.py. */
static void follow(const double *first, double scatter, double n, double floor, int spherical, Py_ssize_t d, double *odds)
{
    double squared = 0;
    for (Py_ssize_t j = 0; j < d; j++)
        squared += first[j] * first[j];
    double m1 = fmax(first[d + 1], FADED_MASS), m2 = fmax(n - first[d + 1], FADED_MASS);
    double t1 = squared / m1, t2 = squared / m2, v1 = 1.0, v2 = 1.0;
    if (spherical) {
        v1 = fmax((first[d] - t1) / m1 / d, floor);
        v2 = fmax((scatter - first[d] - t2) / m2 / d, floor);
    }
    double p1 = 1.0 / v1, p2 = 1.0 / v2, s1 = p1 / m1, s2 = p2 / m2;
    for (Py_ssize_t j = 0; j < d; j++)
        odds[j] = -(s1 + s2) * first[j];
    odds[d] = 0.5 * (p1 - p2);
    odds[d + 1] = log(m2 / m1) - 0.5 * (d * log(v2 / v1) + t2 * s2 - t1 * s1);
}

#define KERNEL "_splitting.c"
#include "_kernel.h"

/* Rows of one component, in place: first those of which the first child has the larger share, each side in its order.
   How many these are. */
static Py_ssize_t part(int64_t *rows, const double *share, Py_ssize_t n, int64_t *spare)
{
    Py_ssize_t n_first = 0, n_second = 0;
    for (Py_ssize_t i = 0; i < n; i++) { /* without a branch: what is written beyond is written over */
        int is_first = share[i] >= 0.5;
        int64_t row = rows[i];
        rows[n_first] = row;
        spare[n_second] = row;
        n_first += is_first;
        n_second += !is_first;
    }
    memcpy(rows + n_first, spare, n_second * sizeof(int64_t));
    return n_first;
}

/* --- Python --- */

/* The components of a batch, as X, rows (a sequence of arrays), means, z and squares describe them. */
typedef struct {
    component *each;
    Py_buffer *rows;
    double *spare; /* one block, where blocks are not kept */
    Py_ssize_t n, total, largest, d;
} batch;

static void forget(batch *all)
{
    if (all->rows)
        release(all->rows, all->n);
    PyMem_Free(all->rows);
    PyMem_Free(all->each);
    PyMem_Free(all->spare);
}

static int read_batch(batch *all, PyObject *rows, Py_buffer *v) /* v: X, means, z, squares */
{
    memset(all, 0, sizeof(batch));
    PyObject *listed = PySequence_Fast(rows, "'rows' must be a sequence of arrays.");
    if (!listed)
        return 0;
    Py_ssize_t n = PySequence_Fast_GET_SIZE(listed), d = n ? v[1].len / 8 / n : 0, total = 0;
    Py_ssize_t n_table = d ? v[0].len / 8 / d : 0;
    all->d = d;
    all->rows = PyMem_Calloc(n + 1, sizeof(Py_buffer));
    all->each = PyMem_Calloc(n + 1, sizeof(component));
    int is_good = all->rows && all->each;
    if (!is_good)
        PyErr_NoMemory();
    else if (d < 1) {
        PyErr_SetString(PyExc_ValueError, "'means' must have a row for each component.");
        is_good = 0;
    }
    for (; is_good && all->n < n; all->n++) {
        Py_buffer *own = &all->rows[all->n];
        if (PyObject_GetBuffer(PySequence_Fast_GET_ITEM(listed, all->n), own, PyBUF_CONTIG)) {
            is_good = 0;
            break;
        }
        const int64_t *row = own->buf;
        Py_ssize_t size = own->len / 8;
        for (Py_ssize_t i = 0; i < size; i++)
            if (row[i] < 0 || row[i] >= n_table) {
                PyErr_Format(PyExc_IndexError, "'rows' has %lld where X has %zd rows.", (long long)row[i], n_table);
                is_good = 0;
                break;
            }
        total += padded(size);
        all->largest = size > all->largest ? size : all->largest;
    }
    Py_DECREF(listed);
    int is_kept = v[3].len > 0;
    is_good = is_good && check(&v[0], n_table * d, "X") && check(&v[1], n * d, "means") &&
              check(&v[2], is_kept ? total * d : 0, "z") && check(&v[3], is_kept ? total : 0, "squares");
    if (is_good && !is_kept && !(all->spare = PyMem_Malloc(BLOCK * (d + 1) * sizeof(double)))) {
        PyErr_NoMemory();
        is_good = 0;
    }
    all->total = total;
    for (Py_ssize_t b = 0, start = 0; is_good && b < n; b++) {
        component *own = &all->each[b];
        own->x = v[0].buf;
        own->mean = (const double *)v[1].buf + b * d;
        own->rows = all->rows[b].buf;
        own->n = all->rows[b].len / 8;
        own->d = d;
        own->is_kept = is_kept;
        own->z = is_kept ? (double *)v[2].buf + start * d : all->spare;
        own->squares = is_kept ? (double *)v[3].buf + start : all->spare + BLOCK * d;
        start += padded(own->n);
    }
    if (!is_good)
        forget(all);
    return is_good;
}

PyDoc_STRVAR(gather_doc, "gather(X, rows, means, z, squares, grams): centered rows of several components in blocks, and their\n"
                         "squares, where z and squares have room for them; and the sums of products of their columns, where\n"
                         "grams has.");
static PyObject *gather(PyObject *self, PyObject *args)
{
    Py_buffer v[5]; /* X, means, z, squares, grams */
    PyObject *rows;
    batch all;
    if (!PyArg_ParseTuple(args, "y*Oy*w*w*w*", &v[0], &rows, &v[1], &v[2], &v[3], &v[4]))
        return NULL;
    int is_good = read_batch(&all, rows, v);
    if (is_good) {
        Py_ssize_t d = all.d;
        int has_grams = v[4].len > 0;
        is_good = check(&v[4], has_grams ? all.n * d * d : 0, "grams");
        if (is_good) {
            Py_BEGIN_ALLOW_THREADS
            for (Py_ssize_t b = 0; b < all.n; b++)
                FASTEST(fill)(&all.each[b], has_grams ? (double *)v[4].buf + b * d * d : NULL);
            Py_END_ALLOW_THREADS
        }
        forget(&all);
    }
    release(v, 5);
    if (!is_good)
        return NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(em_doc, "em(X, rows, means, z, squares, odds, scatters, floors, n_iter, share, first): EM of the two children of\n"
                     "several components, from their log odds; floors of length 0 keep variances at 1. The responsibilities\n"
                     "and the sums of the last E-step are left in share and first.");
static PyObject *em(PyObject *self, PyObject *args)
{
    Py_buffer v[9]; /* X, means, z, squares, odds, scatters, floors, share, first */
    PyObject *rows;
    batch all;
    int n_iter;
    if (!PyArg_ParseTuple(args, "y*Oy*w*w*w*y*y*iw*w*", &v[0], &rows, &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &n_iter,
                          &v[7], &v[8]))
        return NULL;
    int is_good = read_batch(&all, rows, v);
    if (is_good) {
        Py_ssize_t d = all.d;
        int spherical = v[6].len > 0;
        is_good = check(&v[4], all.n * (d + 2), "odds") && check(&v[5], all.n, "scatters") &&
                  check(&v[6], spherical ? all.n : 0, "floors") && check(&v[7], all.total, "share") &&
                  check(&v[8], all.n * (d + 2), "first");
        if (is_good) {
            Py_BEGIN_ALLOW_THREADS
            double *share = v[7].buf;
            for (Py_ssize_t b = 0; b < all.n; b++) {
                double *odds = (double *)v[4].buf + b * (d + 2), *first = (double *)v[8].buf + b * (d + 2);
                double scatter = ((const double *)v[5].buf)[b], floor = spherical ? ((const double *)v[6].buf)[b] : 0.0;
                for (int iteration = 0; iteration < n_iter; iteration++) {
                    if (iteration)
                        follow(first, scatter, (double)all.each[b].n, floor, spherical, d, odds);
                    FASTEST(expect)(&all.each[b], odds, share, first);
                }
                share += padded(all.each[b].n);
            }
            Py_END_ALLOW_THREADS
        }
        forget(&all);
    }
    release(v, 9);
    if (!is_good)
        return NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(divide_doc, "divide(X, rows, means, z, squares, chosen, share, first, n_first): put the rows of the chosen components\n"
                         "in order, those of the first child first, and leave how many these are in n_first and their sums of\n"
                         "[z, |z|^2, 1] in first. A child without rows is no split: such rows stay as they are.");
static PyObject *divide(PyObject *self, PyObject *args)
{
    Py_buffer v[8]; /* X, means, z, squares, chosen, share, first, n_first */
    PyObject *rows;
    batch all;
    if (!PyArg_ParseTuple(args, "y*Oy*w*w*y*w*w*w*", &v[0], &rows, &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7]))
        return NULL;
    int is_good = read_batch(&all, rows, v);
    if (is_good) {
        Py_ssize_t d = all.d;
        int64_t *spare = PyMem_Malloc((all.largest + 1) * sizeof(int64_t));
        is_good = check(&v[4], all.n, "chosen") && check(&v[5], all.total, "share") &&
                  check(&v[6], all.n * (d + 2), "first") && check(&v[7], all.n, "n_first");
        if (is_good && !spare) {
            PyErr_NoMemory();
            is_good = 0;
        }
        if (is_good) {
            Py_BEGIN_ALLOW_THREADS
            double *share = v[5].buf;
            for (Py_ssize_t b = 0; b < all.n; b++) {
                component *own = &all.each[b];
                if (((const int64_t *)v[4].buf)[b]) {
                    FASTEST(add_up)(own, share, (double *)v[6].buf + b * (d + 2));
                    ((int64_t *)v[7].buf)[b] = part(own->rows, share, own->n, spare);
                }
                share += padded(own->n);
            }
            Py_END_ALLOW_THREADS
        }
        PyMem_Free(spare);
        forget(&all);
    }
    release(v, 8);
    if (!is_good)
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"gather", gather, METH_VARARGS, gather_doc},
                                {"em", em, METH_VARARGS, em_doc},
                                {"divide", divide, METH_VARARGS, divide_doc},
                                {"limit", limit, METH_VARARGS, limit_doc},
                                {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_splitting", "The split test in C.", -1, methods,
                                    NULL,                  NULL,         NULL,                   NULL};

PyMODINIT_FUNC PyInit__splitting(void)
{
    level = highest = level_of_processor();
    PyObject *made = PyModule_Create(&module);
    if (made != NULL && (PyModule_AddIntConstant(made, "BLOCK", BLOCK) || PyModule_AddIntConstant(made, "PADDING", PADDING))) {
        Py_DECREF(made);
        return NULL;
    }
    return made;
}

#else /* --- loops over rows, compiled for each NAMED --- */

INLINE lanes NAMED(at)(const double *x) { return *(const lanes *)x; }

INLINE double NAMED(summed)(lanes x) { return ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7])); }

INLINE lanes NAMED(chosen)(whole mask, lanes yes, lanes no)
{
    return (lanes)((mask & (whole)yes) | (~mask & (whole)no));
}

/* e^x for |x| <= 700 to about one unit in the last place, without a branch or a call. */
INLINE lanes NAMED(exponential)(lanes x)
{
    const double shift = 6755399441055744.0; /* 1.5 * 2^52: its last bits hold the rounded multiple of log 2 */
    lanes turns = x * 1.4426950408889634 + shift;
    lanes k = turns - shift;
    lanes r = (x - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10;
    lanes p = r * (1.0 / 6227020800.0) + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    return p * (lanes)(((whole)turns + 1023) << 52);
}

INLINE lanes NAMED(share_of)(lanes odds)
{
    const lanes zero = {0};
    odds = NAMED(chosen)(odds < zero + MOST_ODDS, odds, zero + MOST_ODDS); /* NaN, of inf - inf, too */
    odds = NAMED(chosen)(odds > zero - MOST_ODDS, odds, zero - MOST_ODDS);
    return 1.0 / (1.0 + NAMED(exponential)(odds));
}

/* Responsibilities of the first child for one block of rows, by the log odds against it; 0 for the padding. */
INLINE void NAMED(respond)(const double *block, const double *q, Py_ssize_t m, Py_ssize_t width, Py_ssize_t d,
                           const double *odds, double *share, const double *next)
{
    for (Py_ssize_t i = 0; i < width; i += LANES) {
        if (next) /* columns are short: a processor does not see by itself that the next block will be read */
            for (Py_ssize_t j = 0; j < d; j++)
                __builtin_prefetch(next + i * d + 8 * j, 0, 2);
        lanes u = NAMED(at)(q + i) * odds[d] + odds[d + 1];
        const double *column = block + i;
        for (Py_ssize_t j = 0; j < d; j++, column += width)
            u += NAMED(at)(column) * odds[j];
        *(lanes *)(share + i) = NAMED(share_of)(u);
    }
    for (Py_ssize_t i = m; i < width; i++)
        share[i] = 0.0;
}

/* Add to `sums` (d + 2) those of [z, |z|^2, 1] of one block, each row times its weight; weights of the padding are 0. */
INLINE void NAMED(add_sums)(const double *block, const double *q, const double *w, Py_ssize_t width, Py_ssize_t d,
                            double *sums)
{
    Py_ssize_t j = 0;
    for (; j + 4 <= d; j += 4) {
        const double *column = block + j * width;
        lanes one = {0}, two = {0}, three = {0}, four = {0};
        for (Py_ssize_t i = 0; i < width; i += LANES) {
            lanes weight = NAMED(at)(w + i);
            one += weight * NAMED(at)(column + i);
            two += weight * NAMED(at)(column + width + i);
            three += weight * NAMED(at)(column + 2 * width + i);
            four += weight * NAMED(at)(column + 3 * width + i);
        }
        sums[j] += NAMED(summed)(one);
        sums[j + 1] += NAMED(summed)(two);
        sums[j + 2] += NAMED(summed)(three);
        sums[j + 3] += NAMED(summed)(four);
    }
    for (; j < d; j++) {
        lanes one = {0};
        for (Py_ssize_t i = 0; i < width; i += LANES)
            one += NAMED(at)(w + i) * NAMED(at)(block + j * width + i);
        sums[j] += NAMED(summed)(one);
    }
    lanes squared = {0}, mass = {0};
    for (Py_ssize_t i = 0; i < width; i += LANES) {
        squared += NAMED(at)(w + i) * NAMED(at)(q + i);
        mass += NAMED(at)(w + i);
    }
    sums[d] += NAMED(summed)(squared);
    sums[d + 1] += NAMED(summed)(mass);
}

/* Add to the upper half of `gram` (d, d) the sums of products of the columns of one block, two by two columns. */
INLINE void NAMED(add_products)(const double *block, Py_ssize_t width, Py_ssize_t d, double *gram)
{
    for (Py_ssize_t i = 0; i < d; i += 2)
        for (Py_ssize_t j = i; j < d; j += 2) {
            Py_ssize_t i2 = i + 1 < d ? i + 1 : i, j2 = j + 1 < d ? j + 1 : j;
            const double *a = block + i * width, *b = block + i2 * width, *e = block + j * width, *f = block + j2 * width;
            lanes ae = {0}, af = {0}, be = {0}, bf = {0};
            for (Py_ssize_t k = 0; k < width; k += LANES) {
                lanes one = NAMED(at)(a + k), two = NAMED(at)(b + k), three = NAMED(at)(e + k), four = NAMED(at)(f + k);
                ae += one * three;
                af += one * four;
                be += two * three;
                bf += two * four;
            }
            gram[i * d + j] += NAMED(summed)(ae);
            if (j2 > j)
                gram[i * d + j2] += NAMED(summed)(af);
            if (i2 > i && j > i)
                gram[i2 * d + j] += NAMED(summed)(be);
            if (i2 > i && j2 > j)
                gram[i2 * d + j2] += NAMED(summed)(bf);
        }
}

INLINE four NAMED(near)(const double *x) { return *(const four *)x; }

/* Four rows of four numbers as four columns. */
INLINE void NAMED(turn)(const double *const *own, Py_ssize_t j, four *columns)
{
    four a = NAMED(near)(own[0] + j), b = NAMED(near)(own[1] + j), c = NAMED(near)(own[2] + j), e = NAMED(near)(own[3] + j);
#if defined(__clang__)
    four low1 = __builtin_shufflevector(a, b, 0, 4, 2, 6), high1 = __builtin_shufflevector(a, b, 1, 5, 3, 7);
    four low2 = __builtin_shufflevector(c, e, 0, 4, 2, 6), high2 = __builtin_shufflevector(c, e, 1, 5, 3, 7);
    columns[0] = __builtin_shufflevector(low1, low2, 0, 1, 4, 5);
    columns[1] = __builtin_shufflevector(high1, high2, 0, 1, 4, 5);
    columns[2] = __builtin_shufflevector(low1, low2, 2, 3, 6, 7);
    columns[3] = __builtin_shufflevector(high1, high2, 2, 3, 6, 7);
#else
    const order even = {0, 4, 2, 6}, odd = {1, 5, 3, 7}, front = {0, 1, 4, 5}, back = {2, 3, 6, 7};
    four low1 = __builtin_shuffle(a, b, even), high1 = __builtin_shuffle(a, b, odd);
    four low2 = __builtin_shuffle(c, e, even), high2 = __builtin_shuffle(c, e, odd);
    columns[0] = __builtin_shuffle(low1, low2, front);
    columns[1] = __builtin_shuffle(high1, high2, front);
    columns[2] = __builtin_shuffle(low1, low2, back);
    columns[3] = __builtin_shuffle(high1, high2, back);
#endif
}

/* One block of centered rows, column after column, and their squares; 0 for the padding. */
INLINE void NAMED(center)(const component *own, Py_ssize_t start, Py_ssize_t m, Py_ssize_t width, double *block, double *q)
{
    const Py_ssize_t d = own->d, lines = (d * 8 + 63) / 64 < 4 ? (d * 8 + 63) / 64 : 4;
    const int64_t *rows = own->rows + start;
    const double *mean = own->mean;
    for (Py_ssize_t i = 0; i < width; i += 4) {
        const double *at[4];
        four squared = {0};
        for (Py_ssize_t k = 0; k < 4; k++) {
            at[k] = i + k < m ? own->x + rows[i + k] * d : mean; /* the padding is 0 */
            if (start + i + k + AHEAD < own->n) {
                const double *later = own->x + rows[i + k + AHEAD] * d;
                for (Py_ssize_t line = 0; line < lines; line++)
                    __builtin_prefetch(later + 8 * line);
                __builtin_prefetch(later + d - 1);
            }
        }
        Py_ssize_t j = 0;
        for (; j + 4 <= d; j += 4) {
            four columns[4];
            NAMED(turn)(at, j, columns);
            for (Py_ssize_t k = 0; k < 4; k++) {
                four column = columns[k] - mean[j + k];
                *(four *)(block + (j + k) * width + i) = column;
                squared += column * column;
            }
        }
        for (; j < d; j++) {
            four column = {at[0][j], at[1][j], at[2][j], at[3][j]};
            column -= mean[j];
            *(four *)(block + j * width + i) = column;
            squared += column * column;
        }
        *(four *)(q + i) = squared;
    }
}

/* The block of a component that begins at a row, gathered where it is not kept. */
#define FOR_BLOCKS(own, start, m, width, block, q)                                                                        \
    for (Py_ssize_t start = 0, m = own->n < BLOCK ? own->n : BLOCK, width = padded(m); start < own->n;                    \
         start += BLOCK, m = own->n - start < BLOCK ? own->n - start : BLOCK, width = padded(m))                         \
        for (double *block = own->is_kept ? own->z + start * own->d : own->z,                                            \
                    *q = own->is_kept ? own->squares + start : own->squares;                                             \
             block; block = NULL)

static void NAMED(fill)(const component *own, double *gram)
{
    const Py_ssize_t d = own->d;
    if (gram)
        memset(gram, 0, d * d * sizeof(double));
    FOR_BLOCKS(own, start, m, width, block, q)
    {
        NAMED(center)(own, start, m, width, block, q);
        if (gram)
            NAMED(add_products)(block, width, d, gram);
    }
    for (Py_ssize_t i = 0; gram && i < d; i++)
        for (Py_ssize_t j = 0; j < i; j++)
            gram[i * d + j] = gram[j * d + i];
}

/* E-step: responsibilities, and the sums (d + 2) that they weight. */
static void NAMED(expect)(const component *own, const double *odds, double *share, double *first)
{
    memset(first, 0, (own->d + 2) * sizeof(double));
    FOR_BLOCKS(own, start, m, width, block, q)
    {
        if (!own->is_kept)
            NAMED(center)(own, start, m, width, block, q);
        const double *next = own->is_kept && start + 2 * BLOCK <= own->n ? block + BLOCK * own->d : NULL;
        NAMED(respond)(block, q, m, width, own->d, odds, share + start, next);
        NAMED(add_sums)(block, q, share + start, width, own->d, first);
    }
}

/* Sums (d + 2) of the rows of which the first child has the larger share. */
static void NAMED(add_up)(const component *own, const double *share, double *first)
{
    double weights[BLOCK];
    memset(first, 0, (own->d + 2) * sizeof(double));
    FOR_BLOCKS(own, start, m, width, block, q)
    {
        if (!own->is_kept)
            NAMED(center)(own, start, m, width, block, q);
        for (Py_ssize_t i = 0; i < width; i++)
            weights[i] = share[start + i] >= 0.5 ? 1.0 : 0.0;
        NAMED(add_sums)(block, q, weights, width, own->d, first);
    }
}

#undef FOR_BLOCKS
#endif
