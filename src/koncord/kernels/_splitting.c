/* The split test of koncord.kernels.splitting in C: rows of several components, centered, and EM of two children each.

   The NumPy form in splitting.py is the reference, and is used where this was not built. Sums are taken in double
   precision and in a fixed order; nothing here asks the compiler to reorder arithmetic (no -ffast-math).

   Rows lie in blocks of BLOCK rows, column after column within a block, so that a step over rows is a step over
   neighbors in memory. The last block of a component is padded with zeros to a multiple of PADDING rows.

   The loops over rows are compiled twice on x86-64, for any processor and for those with AVX2: this file includes
   itself for that. Both give the same numbers. */

#ifndef NAMED

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define BLOCK 136 /* a multiple of PADDING; columns of a block do not fall into the same lines of the cache */
#define PADDING 8
#define LANES 4 /* of a vector */
#define MOST_ODDS 700.0 /* beyond, exp leaves the range of a double */
#define FADED_MASS 1e-9 /* as in splitting.py */

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi" /* vectors are passed to functions that are always inlined */
#endif
#if !defined(__GNUC__)
#error "The split test in C needs GCC or Clang, for vectors; without them koncord is built without it."
#endif
#define INLINE static inline __attribute__((always_inline))

/* LANES numbers at once, wherever they lie in memory; compilers cut them to what the processor has. */
typedef double lanes __attribute__((vector_size(8 * LANES), aligned(8), may_alias));
typedef int64_t whole __attribute__((vector_size(8 * LANES), aligned(8), may_alias));

static Py_ssize_t padded(Py_ssize_t n) { return (n + PADDING - 1) / PADDING * PADDING; }

#define NAMED(name) name##_anywhere
#include "_splitting.c"
#undef NAMED
#if !defined(__clang__) && defined(__x86_64__)
#define HAS_AVX2 __builtin_cpu_supports("avx2")
#pragma GCC push_options
#pragma GCC target("avx2")
#define NAMED(name) name##_avx2
#include "_splitting.c"
#undef NAMED
#pragma GCC pop_options
#define FASTEST(name) (HAS_AVX2 ? name##_avx2 : name##_anywhere)
#else
#define FASTEST(name) name##_anywhere
#endif

/* M-step and the log odds that follow: `maximize` and `log_odds` of splitting.py. */
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

/* --- Python --- */

static int check(const Py_buffer *view, Py_ssize_t n, const char *what)
{
    if (view->len != n * 8) {
        PyErr_Format(PyExc_ValueError, "'%s' must have %zd numbers of 8 bytes; got %zd bytes.", what, n, view->len);
        return 0;
    }
    return 1;
}

static void release(Py_buffer *views, int n)
{
    for (int i = 0; i < n; i++)
        PyBuffer_Release(&views[i]);
}

PyDoc_STRVAR(gather_doc, "gather(X, rows, mean, z, squares): centered rows of one component in blocks, and their squares.");
static PyObject *gather(PyObject *self, PyObject *args)
{
    Py_buffer v[5]; /* X, rows, mean, z, squares */
    if (!PyArg_ParseTuple(args, "y*y*y*w*w*", &v[0], &v[1], &v[2], &v[3], &v[4]))
        return NULL;
    Py_ssize_t n = v[1].len / 8, d = v[2].len / 8, n_table = d ? v[0].len / 8 / d : 0;
    int is_good = check(&v[0], n_table * d, "X") && check(&v[3], padded(n) * d, "z") && check(&v[4], padded(n), "squares");
    const int64_t *rows = v[1].buf;
    for (Py_ssize_t i = 0; is_good && i < n; i++)
        if (rows[i] < 0 || rows[i] >= n_table) {
            PyErr_Format(PyExc_IndexError, "'rows' has %lld where X has %zd rows.", (long long)rows[i], n_table);
            is_good = 0;
        }
    if (is_good) {
        Py_BEGIN_ALLOW_THREADS
        FASTEST(center)(v[0].buf, rows, v[2].buf, n, d, v[3].buf, v[4].buf);
        Py_END_ALLOW_THREADS
    }
    release(v, 5);
    if (!is_good)
        return NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(em_doc, "em(z, squares, sizes, odds, scatters, floors, n_iter, share, first): EM of the two children of several\n"
                     "components, from their log odds; floors of length 0 keep variances at 1. The responsibilities and the\n"
                     "sums of the last E-step are left in share and first.");
static PyObject *em(PyObject *self, PyObject *args)
{
    Py_buffer v[8]; /* z, squares, sizes, odds, scatters, floors, share, first */
    int n_iter;
    if (!PyArg_ParseTuple(args, "y*y*y*w*y*y*iw*w*", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &n_iter, &v[6], &v[7]))
        return NULL;
    const int64_t *sizes = v[2].buf;
    Py_ssize_t n_nodes = v[2].len / 8, total = 0, d = n_nodes ? v[3].len / 8 / n_nodes - 2 : 0;
    int is_good = 1, spherical = v[5].len > 0;
    for (Py_ssize_t b = 0; b < n_nodes; b++) {
        if (sizes[b] < 0)
            is_good = 0;
        total += padded(sizes[b] < 0 ? 0 : sizes[b]);
    }
    if (!is_good || d < 1)
        PyErr_SetString(PyExc_ValueError, "'sizes' must be positive, and 'odds' have two more than the columns of z.");
    is_good = is_good && d >= 1 && check(&v[0], total * d, "z") && check(&v[1], total, "squares") &&
              check(&v[3], n_nodes * (d + 2), "odds") && check(&v[4], n_nodes, "scatters") &&
              (!spherical || check(&v[5], n_nodes, "floors")) && check(&v[6], total, "share") &&
              check(&v[7], n_nodes * (d + 2), "first");
    if (is_good) {
        Py_BEGIN_ALLOW_THREADS
        Py_ssize_t start = 0;
        for (Py_ssize_t b = 0; b < n_nodes; b++) {
            const double *z = (const double *)v[0].buf + start * d, *squares = (const double *)v[1].buf + start;
            double *odds = (double *)v[3].buf + b * (d + 2), *first = (double *)v[7].buf + b * (d + 2);
            double *share = (double *)v[6].buf + start, floor = spherical ? ((const double *)v[5].buf)[b] : 0.0;
            for (int iteration = 0; iteration < n_iter; iteration++) {
                if (iteration)
                    follow(first, ((const double *)v[4].buf)[b], (double)sizes[b], floor, spherical, d, odds);
                FASTEST(respond)(z, squares, sizes[b], d, odds, share);
                memset(first, 0, (d + 2) * sizeof(double));
                FASTEST(add_sums)(z, squares, share, sizes[b], d, first);
            }
            start += padded(sizes[b]);
        }
        Py_END_ALLOW_THREADS
    }
    release(v, 8);
    if (!is_good)
        return NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(sums_doc, "sums(z, squares, weights, found): add the sums of [z, |z|^2, 1] of one component to found (d + 2).");
static PyObject *sums(PyObject *self, PyObject *args)
{
    Py_buffer v[4]; /* z, squares, weights, found */
    if (!PyArg_ParseTuple(args, "y*y*y*w*", &v[0], &v[1], &v[2], &v[3]))
        return NULL;
    Py_ssize_t n = v[1].len / 8, d = v[3].len / 8 - 2;
    int is_good = n % PADDING == 0 && check(&v[0], n * d, "z") && check(&v[2], n, "weights");
    if (is_good) {
        Py_BEGIN_ALLOW_THREADS
        FASTEST(add_sums)(v[0].buf, v[1].buf, v[2].buf, n, d, v[3].buf);
        Py_END_ALLOW_THREADS
    } else if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "'squares' must be padded.");
    release(v, 4);
    if (!is_good)
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"gather", gather, METH_VARARGS, gather_doc},
                                {"em", em, METH_VARARGS, em_doc},
                                {"sums", sums, METH_VARARGS, sums_doc},
                                {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_splitting", "The split test in C.", -1, methods,
                                    NULL,                  NULL,         NULL,                   NULL};

PyMODINIT_FUNC PyInit__splitting(void)
{
    PyObject *made = PyModule_Create(&module);
    if (made != NULL && (PyModule_AddIntConstant(made, "BLOCK", BLOCK) || PyModule_AddIntConstant(made, "PADDING", PADDING))) {
        Py_DECREF(made);
        return NULL;
    }
    return made;
}

#else /* --- loops over rows, compiled for each NAMED --- */

INLINE lanes NAMED(at)(const double *x) { return *(const lanes *)x; }

INLINE double NAMED(summed)(lanes x) { return (x[0] + x[1]) + (x[2] + x[3]); }

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

/* Add to `sums` (d + 2) those of [z, |z|^2, 1], each row times its weight; weights of the padding are 0. */
static void NAMED(add_sums)(const double *z, const double *squares, const double *weights, Py_ssize_t n, Py_ssize_t d,
                            double *sums)
{
    for (Py_ssize_t start = 0; start < n; start += BLOCK) {
        Py_ssize_t width = padded(n - start < BLOCK ? n - start : BLOCK), j = 0;
        const double *block = z + start * d, *w = weights + start, *q = squares + start;
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
}

/* Responsibilities of the first child for the rows of one component, by the log odds against it. */
static void NAMED(respond)(const double *z, const double *squares, Py_ssize_t n, Py_ssize_t d, const double *odds,
                           double *share)
{
    for (Py_ssize_t start = 0; start < n; start += BLOCK) {
        Py_ssize_t m = n - start < BLOCK ? n - start : BLOCK, width = padded(m);
        const double *block = z + start * d, *q = squares + start;
        double *t = share + start;
        for (Py_ssize_t i = 0; i < width; i += 2 * LANES) {
            lanes u = NAMED(at)(q + i) * odds[d] + odds[d + 1], v = NAMED(at)(q + i + LANES) * odds[d] + odds[d + 1];
            const double *column = block + i;
            for (Py_ssize_t j = 0; j < d; j++, column += width) {
                u += NAMED(at)(column) * odds[j];
                v += NAMED(at)(column + LANES) * odds[j];
            }
            *(lanes *)(t + i) = NAMED(share_of)(u);
            *(lanes *)(t + i + LANES) = NAMED(share_of)(v);
        }
        for (Py_ssize_t i = m; i < width; i++)
            t[i] = 0.0;
    }
}

static void NAMED(center)(const double *x, const int64_t *rows, const double *mean, Py_ssize_t n, Py_ssize_t d, double *z,
                           double *squares)
{
    for (Py_ssize_t start = 0; start < n; start += BLOCK) {
        Py_ssize_t m = n - start < BLOCK ? n - start : BLOCK, width = padded(m);
        double *block = z + start * d, *q = squares + start;
        for (Py_ssize_t i = 0; i < width; i += LANES) {
            const double *own[LANES];
            lanes squared = {0};
            for (Py_ssize_t k = 0; k < LANES; k++)
                own[k] = i + k < m ? x + rows[start + i + k] * d : mean; /* the padding is 0 */
            for (Py_ssize_t j = 0; j < d; j++) {
                lanes column = {own[0][j], own[1][j], own[2][j], own[3][j]};
                column -= mean[j];
                *(lanes *)(block + j * width + i) = column;
                squared += column * column;
            }
            *(lanes *)(q + i) = squared;
        }
    }
}

#endif
