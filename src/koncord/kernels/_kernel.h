/* What the files in C share: their loops compiled for each kind of processor, and what Python hands them.

   A file includes this once, after its own types, with KERNEL as its own name. Its loops, in the part where NAMED is
   defined, are then compiled up to three times on x86-64: for any processor, and for those with AVX2 and with AVX-512.
   WIDTH is how many doubles a register has there; FASTEST(name) is the form for the processor that the module runs on. */

#ifndef KONCORD_KERNEL_H
#define KONCORD_KERNEL_H

#if !defined(__GNUC__)
#error "The parts in C need GCC or Clang, for vectors; without them koncord is built without it."
#endif
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi" /* vectors are passed to functions that are always inlined */
#endif
#define INLINE static inline __attribute__((always_inline))

#define NAMED(name) name##_anywhere
#define WIDTH 2
#include KERNEL
#undef NAMED
#undef WIDTH
#if !defined(__clang__) && defined(__x86_64__)
#pragma GCC push_options
#pragma GCC target("avx2")
#define NAMED(name) name##_avx2
#define WIDTH 4
#include KERNEL
#undef NAMED
#undef WIDTH
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq")
#define NAMED(name) name##_avx512
#define WIDTH 8
#include KERNEL
#undef NAMED
#undef WIDTH
#pragma GCC pop_options
#define FASTEST(name) (level == 2 ? name##_avx512 : level == 1 ? name##_avx2 : name##_anywhere)
static int level_of_processor(void)
{
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq"))
        return 2;
    return __builtin_cpu_supports("avx2") ? 1 : 0;
}
#else
#define FASTEST(name) name##_anywhere
static int level_of_processor(void) { return 0; }
#endif
static int level = 0, highest = 0; /* set when the module is imported */

PyDoc_STRVAR(limit_doc, "limit(level): use loops of that level at most (0 any processor, 1 AVX2, 2 AVX-512); the level in use.");
static PyObject *limit(PyObject *self, PyObject *args)
{
    int most;
    if (!PyArg_ParseTuple(args, "i", &most))
        return NULL;
    level = most < 0 ? 0 : most < highest ? most : highest;
    return PyLong_FromLong(level);
}

static int check(const Py_buffer *view, Py_ssize_t n, const char *what)
{
    if (view->len != n * 8) {
        PyErr_Format(PyExc_ValueError, "'%s' must have %zd numbers of 8 bytes; got %zd bytes.", what, n, view->len);
        return 0;
    }
    return 1;
}

static void release(Py_buffer *views, Py_ssize_t n)
{
    for (Py_ssize_t i = 0; i < n; i++)
        PyBuffer_Release(&views[i]);
}

#endif
