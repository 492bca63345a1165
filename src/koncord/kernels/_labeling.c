/* Labels of many rows in C: rows on the scale of a plan, the two most likely Gaussians of each row, the side of every cut
   that it lies on, values that are far off, and the lines of text that say so.

   The NumPy forms in gaussians.py, cutting.py, koncord.prepare.plan and koncord.runs.assignments are the reference, and are used where this
   was not built. Sums are taken in double precision and in a fixed order (no -ffast-math); text is that of "%.6g".

   Rows are taken ROWS at a time and turned, so that one step works on as many neighbors in memory. The loops are compiled
   for each kind of processor (_kernel.h), with vectors as long as its registers. All give the same numbers, for a row is
   summed up by itself. */

#ifndef NAMED

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VECTORS 4 /* that are worked on at a time: numbers of a map are read once for all of them */
#define ROWS (WIDTH * VECTORS)
#define MOST_ROWS 32
#define PARTS 8 /* sums that a product of two rows is taken in */
#define FEW_AXES 4 /* after which it is asked whether a cluster is out of reach; a guess takes these alone */
#define CHUNK 65536 /* numbers of the rows that are put in order by a guess at a time */
#define WORTH 64 /* rows a cluster, below which their order is not worth its cost */

/* Gaussians along common axes: rows are projected once, then turned into the standard coordinates of each cluster. */
typedef struct {
    Py_ssize_t k, q, d;
    const double *axes;   /* (q, d) */
    const double *roots;  /* (k, q, q) inverse Cholesky factors: lower triangles */
    const double *shifts; /* (k, q) the centers in these coordinates */
    const double *peaks;  /* (k) log of weight times density at the center */
} mixture;

/* Room for a chunk of rows, in tiles of ROWS rows that lie column by column. Where clusters are put in order, too, rows
   are judged in the order of a guess: rows side by side have the same clusters out of reach, and need not look at them. */
typedef struct {
    Py_ssize_t rows;         /* a multiple of MOST_ROWS */
    double *columns, *along; /* tiles of (d, ROWS) and of (q, ROWS) */
    double *raw, *tile;      /* (ROWS), or (k) if that is more, and (q, ROWS) */
    int64_t *fenced;         /* (rows) of each tile, whether a fence has moved a value */
    int64_t *guess, *order;  /* (rows) */
    int64_t *ends;           /* (k) */
    int64_t *near;           /* (k, k) all clusters, in the order in which they come into question near each; or NULL */
} room;

/* Of each row: the most likely cluster and the one after it, and the squared distances to them. */
typedef struct {
    int64_t *label, *runner_up;
    double *squared, *runner_up_squared;
} found;

/* A column of a table as it came: doubles or floats. */
typedef struct {
    const void *values;
    int is_single;
} column;

/* What brings a column on the scale of the clusters: a fence, mean, scale, and the offset of a site. */
typedef struct {
    const double *low, *high, *means, *scales, *offsets; /* (d) */
    double most;                                         /* no value is farther from 0, before or after */
} scaling;

/* How far from the center of its cluster a value may lie, in spreads; and between which ends none is far off in any. */
typedef struct {
    const double *centers, *spreads; /* (k, d) */
    double reach;
    double *low, *high; /* (d) */
} bounds;

/* Values that are far off, as many as there are. */
typedef struct {
    int64_t *rows, *columns;
    double *beyond;
    Py_ssize_t n, room;
} list;

/* Whether a value may be far off is asked without a division, and with some room for its rounding. */
#define NEARLY(reach) ((reach) * (1 - 1e-9))

static void bound(const bounds *own, Py_ssize_t k, Py_ssize_t d)
{
    for (Py_ssize_t j = 0; j < d; j++) {
        own->low[j] = -INFINITY;
        own->high[j] = INFINITY;
        for (Py_ssize_t c = 0; c < k; c++) {
            const double center = own->centers[c * d + j];
            const double near = NEARLY(own->reach) * own->spreads[c * d + j] - 1e-14 * fabs(center);
            own->low[j] = fmax(own->low[j], center - near);
            own->high[j] = fmin(own->high[j], center + near);
        }
    }
}

static int grown(list *all, Py_ssize_t room)
{
    int64_t *rows = realloc(all->rows, room * 8), *columns = rows ? realloc(all->columns, room * 8) : NULL;
    double *beyond = columns ? realloc(all->beyond, room * 8) : NULL;
    all->rows = rows ? rows : all->rows;
    all->columns = columns ? columns : all->columns;
    all->beyond = beyond ? beyond : all->beyond;
    all->room = beyond ? room : all->room;
    return beyond != NULL;
}

/* The values of a row, `step` apart, that are far off: added to the list. */
static int add_far(list *all, Py_ssize_t at, const double *row, Py_ssize_t step, const double *center, const double *spread,
                   Py_ssize_t d, double reach)
{
    for (Py_ssize_t j = 0; j < d; j++) {
        double beyond = fabs(row[j * step] - center[j]) / spread[j];
        if (beyond > reach) {
            if (all->n == all->room && !grown(all, 2 * all->room + 1024))
                return 0;
            all->rows[all->n] = at;
            all->columns[all->n] = j;
            all->beyond[all->n++] = beyond;
        }
    }
    return 1;
}

/* Clusters by how likely each is at the center of another. */
static void put_clusters_in_order(const mixture *all, const room *own)
{
    const Py_ssize_t k = all->k, q = all->q;
    double *center = own->tile, *joint = own->raw; /* not in use yet */
    int64_t *near = own->near;
    for (Py_ssize_t of = 0; near && of < k; of++) {
        const double *root = all->roots + of * q * q, *shift = all->shifts + of * q;
        for (Py_ssize_t i = 0; i < q; i++) { /* root times the center is the shift */
            center[i] = shift[i];
            for (Py_ssize_t j = 0; j < i; j++)
                center[i] -= root[i * q + j] * center[j];
            center[i] /= root[i * q + i];
        }
        for (Py_ssize_t c = 0; c < k; c++) {
            joint[c] = all->peaks[c];
            for (Py_ssize_t i = 0; i < q; i++) {
                double gap = -all->shifts[c * q + i];
                for (Py_ssize_t j = 0; j <= i; j++)
                    gap += all->roots[(c * q + i) * q + j] * center[j];
                joint[c] -= 0.5 * gap * gap;
            }
            Py_ssize_t at = c; /* behind those that are likelier */
            for (; at > 0 && joint[near[of * k + at - 1]] < joint[c]; at--)
                near[of * k + at] = near[of * k + at - 1];
            near[of * k + at] = c;
        }
    }
}

/* Room for n rows, or as many of them as stay near the processor. */
static int reserve(room *own, const mixture *all, Py_ssize_t n)
{
    const Py_ssize_t d = all->d, q = all->q, k = all->k, most = CHUNK / (d + q + 1);
    own->rows = ((n < most ? n : most) / MOST_ROWS + 1) * MOST_ROWS;
    own->columns = PyMem_Malloc(((d + q) * own->rows + (q + 1) * MOST_ROWS + k) * sizeof(double));
    own->fenced = PyMem_Malloc((3 * own->rows + k + 1) * sizeof(int64_t));
    const int is_ordered = k > 2 && q > FEW_AXES && n >= WORTH * k;
    own->near = is_ordered ? PyMem_Malloc(k * k * sizeof(int64_t)) : NULL;
    if (!own->columns || !own->fenced || (is_ordered && !own->near)) {
        PyErr_NoMemory();
        return 0;
    }
    own->along = own->columns + d * own->rows;
    own->tile = own->along + q * own->rows;
    own->raw = own->tile + q * MOST_ROWS;
    own->guess = own->fenced + own->rows;
    own->order = own->guess + own->rows;
    own->ends = own->order + own->rows;
    return 1;
}

static void vacate(room *own)
{
    PyMem_Free(own->columns);
    PyMem_Free(own->fenced);
    PyMem_Free(own->near);
}

/* Rows that have the same guess one after the other. */
static void put_rows_in_order(const room *own, Py_ssize_t n, Py_ssize_t k)
{
    memset(own->ends, 0, k * sizeof(int64_t));
    for (Py_ssize_t i = 0; i < n; i++)
        own->ends[own->guess[i]]++;
    for (Py_ssize_t c = 1; c < k; c++)
        own->ends[c] += own->ends[c - 1];
    for (Py_ssize_t i = n - 1; i >= 0; i--)
        own->order[--own->ends[own->guess[i]]] = i;
}

#define KERNEL "_labeling.c"
#include "_kernel.h"

/* --- text --- */

static char pairs[200]; /* "00" to "99", set when the module is imported */
#define IS_LITTLE (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)

static inline uint64_t pair(uint64_t number)
{
    uint16_t both;
    memcpy(&both, pairs + 2 * number, 2);
    return both;
}

static char *put_whole(char *at, int64_t value)
{
    uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value, bound = 10;
    int n = 1;
    if (value < 0)
        *at++ = '-';
    for (; n < 19 && left >= bound; bound *= 10)
        n++;
    n += left >= 10000000000000000000u;
    char *end = at + n;
    for (; n > 1; n -= 2, left /= 100)
        memcpy(at + n - 2, pairs + 2 * (left % 100), 2);
    if (n)
        *at = (char)('0' + left);
    return end;
}

/* As "%.6g". Six digits follow from one multiplication by an exact power of ten, unless the number lies so near to the
   middle of two that its rounding could decide, or needs an exponent: then the library writes it. The digits are put
   together in one number, its first byte the first of the text, and 8 bytes are written whatever the length of it. */
static char *put_float(char *at, double value)
{
    static const double powers[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9};
    static const double bounds[] = {1e-4, 1e-3, 1e-2, 1e-1, 1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6};
    if (IS_LITTLE && value >= 1e-4 && value < 1e6) {
        int whole = 1; /* digits before the point; none, and zeros behind it, where this is not positive */
        while (value < bounds[whole + 3])
            whole--;
        while (value >= bounds[whole + 4])
            whole++;
        double scaled = value * powers[6 - whole];
        uint64_t number = (uint64_t)scaled;
        double rest = scaled - (double)number;
        number += rest > 0.5;
        if (fabs(rest - 0.5) > 1e-6 && number >= 100000 && number < 1000000) {
            uint64_t digits = pair(number / 10000) | pair(number / 100 % 100) << 16 | pair(number % 100) << 32;
            int n = (63 - __builtin_clzll(digits ^ 0x303030303030)) / 8 + 1; /* without zeros at the end */
            if (whole > 0) {
                uint64_t before = digits & ((1ull << 8 * whole) - 1), behind = digits >> 8 * whole << 8 << 8 * whole;
                uint64_t text = before | (uint64_t)'.' << 8 * whole | behind;
                memcpy(at, &text, 8);
                return at + (n > whole ? n + 1 : whole);
            }
            memcpy(at, "0.000", 5);
            memcpy(at + 2 - whole, &digits, 8);
            return at + 2 - whole + n;
        }
    }
    int n = snprintf(at, 32, "%.6g", isnan(value) ? fabs(value) : value); /* NaN has no sign in Python */
    for (int i = 0; i < n; i++)
        if (at[i] == ',') /* the point of some locales */
            at[i] = '.';
    return at + n;
}

/* --- Python --- */

PyDoc_STRVAR(judge_doc, "judge(X, axes, roots, shifts, peaks, labels, squared, runner_ups, runner_up_squared): the two most\n"
                        "likely clusters of every row, and the squared distances to them.");
static PyObject *judge(PyObject *self, PyObject *args)
{
    Py_buffer v[9];
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*w*w*w*w*", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7], &v[8]))
        return NULL;
    Py_ssize_t n = v[5].len / 8, k = v[4].len / 8, q = k ? v[3].len / 8 / k : 0, d = q ? v[1].len / 8 / q : 0;
    int is_good = check(&v[0], n * d, "X") && check(&v[1], q * d, "axes") && check(&v[2], k * q * q, "roots") &&
                  check(&v[3], k * q, "shifts") && check(&v[6], n, "squared") && check(&v[7], n, "runner_ups") &&
                  check(&v[8], n, "runner_up_squared");
    mixture all = {k, q, d, v[1].buf, v[2].buf, v[3].buf, v[4].buf};
    room own = {0};
    is_good = is_good && reserve(&own, &all, n);
    if (is_good) {
        found out = {v[5].buf, v[7].buf, v[6].buf, v[8].buf};
        Py_BEGIN_ALLOW_THREADS
        put_clusters_in_order(&all, &own);
        FASTEST(judge_rows)(&all, v[0].buf, n, out, &own);
        Py_END_ALLOW_THREADS
    }
    vacate(&own);
    release(v, 9);
    if (!is_good)
        return NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(walk_doc, "walk(X, axes, offsets, sides, groups): the group of every row behind some cuts, as `CutTree` has them.");
static PyObject *walk(PyObject *self, PyObject *args)
{
    Py_buffer v[5];
    if (!PyArg_ParseTuple(args, "y*y*y*y*w*", &v[0], &v[1], &v[2], &v[3], &v[4]))
        return NULL;
    Py_ssize_t n = v[4].len / 8, n_cuts = v[2].len / 8, d = n_cuts ? v[1].len / 8 / n_cuts : 0;
    int is_good = check(&v[0], n * d, "X") && check(&v[1], n_cuts * d, "axes") && check(&v[3], 2 * n_cuts, "sides");
    const int64_t *sides = v[3].buf;
    for (Py_ssize_t i = 0; is_good && i < 2 * n_cuts; i++)
        if (sides[i] >= n_cuts || (sides[i] >= 0 && sides[i] <= i / 2)) {
            PyErr_SetString(PyExc_ValueError, "'sides' must lead to later cuts, or to groups.");
            is_good = 0;
        }
    if (is_good && n_cuts) {
        Py_BEGIN_ALLOW_THREADS
        FASTEST(walk_rows)(v[0].buf, n, d, v[1].buf, v[2].buf, sides, v[4].buf);
        Py_END_ALLOW_THREADS
    }
    release(v, 5);
    if (!is_good)
        return NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(scale_doc, "scale(X, low, high, means, scales, most, Z): rows behind a fence and on a common scale, at most `most` from\n"
                        "0. A value that is missing stays so.");
static PyObject *scale(PyObject *self, PyObject *args)
{
    Py_buffer v[6]; /* X, low, high, means, scales, Z */
    double most;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*dw*", &v[0], &v[1], &v[2], &v[3], &v[4], &most, &v[5]))
        return NULL;
    Py_ssize_t d = v[3].len / 8, n = d ? v[0].len / 8 / d : 0;
    int is_good = check(&v[0], n * d, "X") && check(&v[1], d, "low") && check(&v[2], d, "high") &&
                  check(&v[4], d, "scales") && check(&v[5], n * d, "Z");
    if (is_good) {
        Py_BEGIN_ALLOW_THREADS
        FASTEST(scale_rows)(v[0].buf, n, d, v[1].buf, v[2].buf, v[3].buf, v[4].buf, most, v[5].buf);
        Py_END_ALLOW_THREADS
    }
    release(v, 6);
    if (!is_good)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *listed(const list *all)
{
    return Py_BuildValue("y#y#y#", all->n ? (char *)all->rows : "", all->n * 8, all->n ? (char *)all->columns : "", all->n * 8,
                         all->n ? (char *)all->beyond : "", all->n * 8);
}

static void forget(list *all)
{
    free(all->rows);
    free(all->columns);
    free(all->beyond);
}

PyDoc_STRVAR(far_doc, "far(X, centers, spreads, labels, reach): rows, columns and distances, in spreads of its cluster, of all values\n"
                      "that lie beyond `reach` from the center of their row's cluster; as bytes.");
static PyObject *far(PyObject *self, PyObject *args)
{
    Py_buffer v[4]; /* X, centers, spreads, labels */
    double reach;
    if (!PyArg_ParseTuple(args, "y*y*y*y*d", &v[0], &v[1], &v[2], &v[3], &reach))
        return NULL;
    Py_ssize_t n = v[3].len / 8, d = n ? v[0].len / 8 / n : 0, k = d ? v[1].len / 8 / d : 0;
    const double *x = v[0].buf, *centers = v[1].buf, *spreads = v[2].buf;
    const int64_t *labels = v[3].buf;
    int is_good = check(&v[0], n * d, "X") && check(&v[1], k * d, "centers") && check(&v[2], k * d, "spreads");
    for (Py_ssize_t i = 0; is_good && i < n; i++)
        if (labels[i] < 0 || labels[i] >= k) {
            PyErr_SetString(PyExc_ValueError, "'labels' must be those of the centers.");
            is_good = 0;
        }
    list all = {0};
    PyObject *made = NULL;
    if (is_good) {
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; is_good && i < n; i++) {
            const double *row = x + i * d, *center = centers + labels[i] * d, *spread = spreads + labels[i] * d;
            if (FASTEST(has_far)(row, center, spread, d, NEARLY(reach)))
                is_good = add_far(&all, i, row, 1, center, spread, d, reach);
        }
        Py_END_ALLOW_THREADS
        made = is_good ? listed(&all) : PyErr_NoMemory();
    }
    forget(&all);
    release(v, 4);
    return made;
}

/* Columns of n numbers from a sequence of arrays; how many there are, or -1. */
static Py_ssize_t read_columns(PyObject *given, Py_ssize_t n, Py_buffer **views, column **columns)
{
    PyObject *fast = PySequence_Fast(given, "'columns' must be a sequence of arrays.");
    if (!fast)
        return -1;
    Py_ssize_t d = PySequence_Fast_GET_SIZE(fast), at = 0;
    *views = PyMem_Calloc(d + 1, sizeof(Py_buffer));
    *columns = PyMem_Calloc(d + 1, sizeof(column));
    int is_good = *views && *columns;
    if (!is_good)
        PyErr_NoMemory();
    for (; is_good && at < d; at++) {
        Py_buffer *own = &(*views)[at];
        if (PyObject_GetBuffer(PySequence_Fast_GET_ITEM(fast, at), own, PyBUF_CONTIG_RO | PyBUF_FORMAT)) {
            is_good = 0;
            break;
        }
        const char kind = own->format && own->format[0] && !own->format[1] ? own->format[0] : 0;
        (*columns)[at] = (column){own->buf, kind == 'f'};
        if ((kind != 'f' && kind != 'd') || own->len != n * own->itemsize) {
            PyErr_Format(PyExc_ValueError, "'columns' must be of %zd floats or doubles each.", n);
            is_good = 0;
        }
    }
    Py_DECREF(fast);
    if (!is_good && *views)
        release(*views, at);
    return is_good ? d : -1;
}

static void forget_columns(Py_ssize_t d, Py_buffer *views, column *columns)
{
    if (d >= 0)
        release(views, d);
    PyMem_Free(views);
    PyMem_Free(columns);
}

PyDoc_STRVAR(turn_doc, "turn(columns, X): the rows of some columns, arrays of floats or doubles.");
static PyObject *turn(PyObject *self, PyObject *args)
{
    PyObject *given;
    Py_buffer x, *views = NULL;
    column *columns = NULL;
    if (!PyArg_ParseTuple(args, "Ow*", &given, &x))
        return NULL;
    Py_ssize_t width = PySequence_Size(given), n = width > 0 ? x.len / 8 / width : 0;
    Py_ssize_t d = width < 0 ? -1 : read_columns(given, n, &views, &columns);
    int is_good = d >= 0 && check(&x, n * d, "X");
    if (is_good) {
        Py_BEGIN_ALLOW_THREADS
        FASTEST(turn_columns)(columns, n, d, x.buf);
        Py_END_ALLOW_THREADS
    }
    forget_columns(d, views, columns);
    PyBuffer_Release(&x);
    if (!is_good)
        return NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(label_doc, "label(columns, scaling, most, axes, roots, shifts, peaks, centers, spreads, reach, labels, squared,\n"
                        "runner_ups, runner_up_squared): scale, judge and far in one step, of rows column by column. `columns` are\n"
                        "arrays of floats or doubles, `scaling` their low, high, means, scales and offsets (5, d). What `far`\n"
                        "returns; None, and no labels, where a value is no number or farther than `most` from 0.");
static PyObject *label(PyObject *self, PyObject *args)
{
    PyObject *given, *made = NULL;
    Py_buffer v[11], *views = NULL; /* scaling, axes, roots, shifts, peaks, centers, spreads, and four to fill */
    column *columns = NULL;
    double most, reach;
    if (!PyArg_ParseTuple(args, "Oy*dy*y*y*y*y*y*dw*w*w*w*", &given, &v[0], &most, &v[1], &v[2], &v[3], &v[4], &v[5], &v[6],
                          &reach, &v[7], &v[8], &v[9], &v[10]))
        return NULL;
    Py_ssize_t n = v[7].len / 8, k = v[4].len / 8, q = k ? v[3].len / 8 / k : 0, d = read_columns(given, n, &views, &columns);
    int is_good = d >= 0 && check(&v[0], 5 * d, "scaling") && check(&v[1], q * d, "axes") &&
                  check(&v[2], k * q * q, "roots") && check(&v[3], k * q, "shifts") && check(&v[5], k * d, "centers") &&
                  check(&v[6], k * d, "spreads") && check(&v[8], n, "squared") && check(&v[9], n, "runner_ups") &&
                  check(&v[10], n, "runner_up_squared");
    double *ends = is_good ? PyMem_Malloc((2 * d + 1) * sizeof(double)) : NULL;
    mixture all = {k, q, d, v[1].buf, v[2].buf, v[3].buf, v[4].buf};
    room own = {0};
    if (is_good && !ends)
        PyErr_NoMemory();
    else if (is_good && reserve(&own, &all, n)) {
        const double *scale = v[0].buf;
        scaling to = {scale, scale + d, scale + 2 * d, scale + 3 * d, scale + 4 * d, most};
        bounds near = {v[5].buf, v[6].buf, reach, ends, ends + d};
        found out = {v[7].buf, v[9].buf, v[8].buf, v[10].buf};
        list far = {0};
        int done;
        Py_BEGIN_ALLOW_THREADS
        put_clusters_in_order(&all, &own);
        bound(&near, k, d);
        done = FASTEST(label_rows)(columns, &to, &all, &near, n, out, &far, &own);
        Py_END_ALLOW_THREADS
        made = done > 0 ? listed(&far) : done < 0 ? PyErr_NoMemory() : Py_NewRef(Py_None);
        forget(&far);
    }
    PyMem_Free(ends);
    vacate(&own);
    forget_columns(d, views, columns);
    release(v, 11);
    return made;
}

PyDoc_STRVAR(lines_doc, "lines(first, labels, distances, runner_ups, runner_up_distances, has_field, rows, ends): a line of CSV for\n"
                        "each row, numbered from `first`, with an empty field at its end where `has_field`; runner-ups of length 0\n"
                        "leave their fields empty. Where the lines of some `rows`, rising, end in it is left in `ends`.");
static PyObject *lines(PyObject *self, PyObject *args)
{
    Py_buffer v[6];
    long long first;
    int has_field;
    if (!PyArg_ParseTuple(args, "Ly*y*y*y*py*w*", &first, &v[0], &v[1], &v[2], &v[3], &has_field, &v[4], &v[5]))
        return NULL;
    Py_ssize_t n = v[0].len / 8, n_rows = v[4].len / 8, next_row = 0;
    int has_others = v[2].len > 0;
    int is_good = check(&v[1], n, "distances") && check(&v[2], has_others ? n : 0, "runner_ups") &&
                  check(&v[3], has_others ? n : 0, "runner_up_distances") && check(&v[5], n_rows, "ends");
    /* Three whole numbers, two of 32 bytes at most. A block that is freed whole is given again, and is not cleared for it. */
    char *text = is_good ? PyMem_Malloc(n * 128 + 1) : NULL, *at = text;
    PyObject *made = NULL;
    if (is_good && !text)
        PyErr_NoMemory();
    else if (is_good) {
        const int64_t *label = v[0].buf, *runner_up = v[2].buf, *rows = v[4].buf;
        const double *distance = v[1].buf, *next = v[3].buf;
        int64_t *ends = v[5].buf;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < n; i++) {
            at = put_whole(at, first + i);
            *at++ = ',';
            at = put_whole(at, label[i]);
            *at++ = ',';
            at = put_float(at, distance[i]);
            *at++ = ',';
            if (has_others)
                at = put_whole(at, runner_up[i]);
            *at++ = ',';
            if (has_others)
                at = put_float(at, next[i]);
            if (has_field)
                *at++ = ',';
            for (; next_row < n_rows && rows[next_row] <= i; next_row++)
                ends[next_row] = at - text;
            *at++ = '\n';
        }
        Py_END_ALLOW_THREADS
        made = PyBytes_FromStringAndSize(text, at - text);
    }
    PyMem_Free(text);
    release(v, 6);
    return made;
}

PyDoc_STRVAR(are_within_doc, "are_within(X, most): whether every value is a number and at most `most` from 0.");
static PyObject *are_within(PyObject *self, PyObject *args)
{
    Py_buffer view;
    double most;
    if (!PyArg_ParseTuple(args, "y*d", &view, &most))
        return NULL;
    int is_good;
    Py_BEGIN_ALLOW_THREADS
    is_good = FASTEST(within)(view.buf, view.len / 8, most);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&view);
    return PyBool_FromLong(is_good);
}

static PyMethodDef methods[] = {{"judge", judge, METH_VARARGS, judge_doc},
                                {"walk", walk, METH_VARARGS, walk_doc},
                                {"scale", scale, METH_VARARGS, scale_doc},
                                {"far", far, METH_VARARGS, far_doc},
                                {"turn", turn, METH_VARARGS, turn_doc},
                                {"label", label, METH_VARARGS, label_doc},
                                {"lines", lines, METH_VARARGS, lines_doc},
                                {"are_within", are_within, METH_VARARGS, are_within_doc},
                                {"limit", limit, METH_VARARGS, limit_doc},
                                {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_labeling", "Labels of many rows in C.", -1, methods,
                                    NULL,                  NULL,        NULL,                        NULL};

PyMODINIT_FUNC PyInit__labeling(void)
{
    level = highest = level_of_processor();
    for (int i = 0; i < 100; i++) {
        pairs[2 * i] = (char)('0' + i / 10);
        pairs[2 * i + 1] = (char)('0' + i % 10);
    }
    return PyModule_Create(&module);
}

#else /* --- loops over rows, compiled for each NAMED --- */

typedef double NAMED(lanes) __attribute__((vector_size(8 * WIDTH), aligned(8), may_alias));
typedef int64_t NAMED(whole) __attribute__((vector_size(8 * WIDTH), aligned(8), may_alias));
#define lanes NAMED(lanes)
#define whole NAMED(whole)

INLINE lanes NAMED(at)(const double *x) { return *(const lanes *)x; }

INLINE lanes NAMED(chosen)(whole mask, lanes yes, lanes no)
{
    return (lanes)((mask & (whole)yes) | (~mask & (whole)no));
}

INLINE int NAMED(any)(whole mask)
{
    int64_t found = 0;
    for (int i = 0; i < WIDTH; i++)
        found |= mask[i];
    return found != 0;
}

/* Sums of `n` columns of ROWS numbers, each times its factor. */
INLINE void NAMED(weighted)(const double *columns, const double *factors, Py_ssize_t n, lanes *sums)
{
    lanes one = {0}, two = {0}, three = {0}, four = {0};
    for (Py_ssize_t j = 0; j < n; j++, columns += ROWS) {
        const double factor = factors[j];
        one += NAMED(at)(columns) * factor;
        two += NAMED(at)(columns + WIDTH) * factor;
        three += NAMED(at)(columns + 2 * WIDTH) * factor;
        four += NAMED(at)(columns + 3 * WIDTH) * factor;
    }
    sums[0] = one;
    sums[1] = two;
    sums[2] = three;
    sums[3] = four;
}

/* Add to the squared distances of ROWS rows to a cluster those along some axes, by their projections (q, ROWS). */
INLINE void NAMED(add_squares)(const mixture *all, Py_ssize_t c, Py_ssize_t first, Py_ssize_t last, const double *along,
                               lanes *squared)
{
    const double *root = all->roots + c * all->q * all->q, *shift = all->shifts + c * all->q;
    for (Py_ssize_t i = first; i < last; i++) {
        lanes sums[VECTORS];
        NAMED(weighted)(along, root + i * all->q, i + 1, sums);
        for (int v = 0; v < VECTORS; v++) {
            sums[v] -= shift[i];
            squared[v] += sums[v] * sums[v];
        }
    }
}

/* The cluster of ROWS rows that is most likely as far as the first axes tell. */
INLINE void NAMED(make_guess)(const mixture *all, const double *along, int64_t *guess)
{
    lanes best[VECTORS];
    whole label[VECTORS] = {{0}};
    for (int v = 0; v < VECTORS; v++)
        best[v] = (lanes){0} - INFINITY;
    for (Py_ssize_t c = 0; c < all->k; c++) {
        lanes squared[VECTORS] = {{0}};
        NAMED(add_squares)(all, c, 0, FEW_AXES, along, squared);
        for (int v = 0; v < VECTORS; v++) {
            const lanes joint = all->peaks[c] - 0.5 * squared[v];
            const whole is_best = joint > best[v];
            best[v] = NAMED(chosen)(is_best, joint, best[v]);
            label[v] = (is_best & c) | (~is_best & label[v]);
        }
    }
    memcpy(guess, label, sizeof(label));
}

/* Whether a cluster with these squared distances, up to now, may be one of the two most likely of any of the rows. */
INLINE int NAMED(is_in_reach)(double peak, const lanes *squared, const lanes *second)
{
    whole may_be = {0};
    for (int v = 0; v < VECTORS; v++)
        may_be |= peak - 0.5 * squared[v] >= second[v];
    return NAMED(any)(may_be);
}

/* The two most likely clusters of ROWS rows, the lowest on ties, by their projections (q, ROWS). Clusters are looked at in
   the order of `near`, where there is one: squares add up, so that one that is out of reach after some axes stays so. */
INLINE void NAMED(two_best)(const mixture *all, const double *along, const int64_t *near, found out)
{
    const Py_ssize_t q = all->q, step = near ? FEW_AXES : q;
    const lanes zero = {0};
    const whole none = {0};
    lanes best[VECTORS], second[VECTORS], best_squared[VECTORS], second_squared[VECTORS];
    whole label[VECTORS], runner_up[VECTORS];
    for (int v = 0; v < VECTORS; v++) {
        best[v] = second[v] = zero - INFINITY;
        best_squared[v] = second_squared[v] = zero + INFINITY;
        label[v] = runner_up[v] = none;
    }
    for (Py_ssize_t turn = 0; turn < all->k; turn++) {
        const int64_t c = near ? near[turn] : turn;
        lanes squared[VECTORS] = {{0}};
        Py_ssize_t done = 0;
        do {
            const Py_ssize_t next = done + step < q ? done + step : q;
            NAMED(add_squares)(all, c, done, next, along, squared);
            done = next;
        } while (done < q && NAMED(is_in_reach)(all->peaks[c], squared, second));
        if (done < q)
            continue;
        for (int v = 0; v < VECTORS; v++) {
            const lanes joint = all->peaks[c] - 0.5 * squared[v];
            const whole is_best = (joint > best[v]) | ((joint == best[v]) & (c < label[v]));
            const whole is_second = (joint > second[v]) | ((joint == second[v]) & (c < runner_up[v]));
            second[v] = NAMED(chosen)(is_best, best[v], NAMED(chosen)(is_second, joint, second[v]));
            second_squared[v] =
                NAMED(chosen)(is_best, best_squared[v], NAMED(chosen)(is_second, squared[v], second_squared[v]));
            runner_up[v] = (is_best & label[v]) | (~is_best & ((is_second & c) | (~is_second & runner_up[v])));
            best[v] = NAMED(chosen)(is_best, joint, best[v]);
            best_squared[v] = NAMED(chosen)(is_best, squared[v], best_squared[v]);
            label[v] = (is_best & c) | (~is_best & label[v]);
        }
    }
    for (int v = 0; v < VECTORS; v++) {
        *(whole *)(out.label + v * WIDTH) = label[v];
        *(whole *)(out.runner_up + v * WIDTH) = runner_up[v];
        *(lanes *)(out.squared + v * WIDTH) = best_squared[v];
        *(lanes *)(out.runner_up_squared + v * WIDTH) = second_squared[v];
    }
}

/* The two most likely clusters of the first n rows of a room, by their columns. */
static void NAMED(judge_room)(const mixture *all, const room *own, Py_ssize_t n, found out)
{
    const Py_ssize_t d = all->d, q = all->q;
    int64_t labels[2 * ROWS];
    double squares[2 * ROWS];
    const found here = {labels, labels + ROWS, squares, squares + ROWS};
    for (Py_ssize_t start = 0; start < n; start += ROWS) {
        const double *columns = own->columns + start * d;
        double *along = own->along + start * q;
        for (Py_ssize_t i = 0; i < q; i++) {
            lanes sums[VECTORS];
            NAMED(weighted)(columns, all->axes + i * d, d, sums);
            for (int v = 0; v < VECTORS; v++)
                *(lanes *)(along + i * ROWS + v * WIDTH) = sums[v];
        }
        if (own->near)
            NAMED(make_guess)(all, along, own->guess + start);
    }
    if (own->near)
        put_rows_in_order(own, n, all->k);
    else
        for (Py_ssize_t i = 0; i < n; i++)
            own->order[i] = i;
    for (Py_ssize_t start = 0; start < n; start += ROWS) {
        const Py_ssize_t m = n - start < ROWS ? n - start : ROWS; /* beside the last rows are copies of the last one */
        const int64_t *rows = own->order + start;
        const double *along = own->along + start * q;
        int64_t places[ROWS];
        if (own->near) {
            for (Py_ssize_t i = 0; i < ROWS; i++) {
                const int64_t row = rows[i < m ? i : m - 1];
                places[i] = row / ROWS * ROWS * q + row % ROWS;
            }
            for (Py_ssize_t j = 0; j < q; j++)
                for (Py_ssize_t i = 0; i < ROWS; i++)
                    own->tile[j * ROWS + i] = own->along[places[i] + j * ROWS];
            along = own->tile;
        }
        NAMED(two_best)(all, along, own->near ? own->near + own->guess[rows[0]] * all->k : NULL, here);
        for (Py_ssize_t i = 0; i < m; i++) {
            out.label[rows[i]] = here.label[i];
            out.runner_up[rows[i]] = here.runner_up[i];
            out.squared[rows[i]] = here.squared[i];
            out.runner_up_squared[rows[i]] = here.runner_up_squared[i];
        }
    }
}

INLINE found NAMED(from)(found out, Py_ssize_t start)
{
    return (found){out.label + start, out.runner_up + start, out.squared + start, out.runner_up_squared + start};
}

static void NAMED(judge_rows)(const mixture *all, const double *x, Py_ssize_t n, found out, const room *own)
{
    const Py_ssize_t d = all->d;
    for (Py_ssize_t start = 0; start < n; start += own->rows, x += own->rows * d) {
        const Py_ssize_t m = n - start < own->rows ? n - start : own->rows;
        for (Py_ssize_t tile = 0; tile < m; tile += ROWS)
            for (Py_ssize_t j = 0; j < d; j++)
                for (Py_ssize_t i = 0; i < ROWS; i++)
                    own->columns[tile * d + j * ROWS + i] = x[(tile + i < m ? tile + i : m - 1) * d + j];
        NAMED(judge_room)(all, own, m, NAMED(from)(out, start));
    }
}

/* ROWS values of a column, the last of `m` again beyond them. */
INLINE void NAMED(load)(const column *own, Py_ssize_t start, Py_ssize_t m, double *x)
{
    const float *singles = (const float *)own->values + start;
    const double *doubles = (const double *)own->values + start;
    if (m < ROWS)
        for (Py_ssize_t i = 0; i < ROWS; i++)
            x[i] = own->is_single ? (double)singles[i < m ? i : m - 1] : doubles[i < m ? i : m - 1];
    else if (own->is_single)
        for (Py_ssize_t i = 0; i < ROWS; i++)
            x[i] = singles[i];
    else
        memcpy(x, doubles, ROWS * sizeof(double));
}

static void NAMED(turn_columns)(const column *columns, Py_ssize_t n, Py_ssize_t d, double *x)
{
    double values[ROWS];
    for (Py_ssize_t start = 0; start < n; start += ROWS) {
        const Py_ssize_t m = n - start < ROWS ? n - start : ROWS;
        for (Py_ssize_t j = 0; j < d; j++) {
            NAMED(load)(&columns[j], start, m, values);
            for (Py_ssize_t i = 0; i < m; i++)
                x[(start + i) * d + j] = values[i];
        }
    }
}

/* ROWS values on the scale of column j, behind a fence. */
INLINE void NAMED(bring)(const scaling *to, Py_ssize_t j, double low, double high, const double *x, double *z)
{
    const double mean = to->means[j], scale = to->scales[j], most = to->most, offset = to->offsets[j];
    for (Py_ssize_t i = 0; i < ROWS; i++) {
        double value = x[i] < low ? low : x[i];
        value = ((value > high ? high : value) - mean) / scale;
        value = value < -most ? -most : value;
        z[i] = (value > most ? most : value) - offset;
    }
}

/* Fill a tile (d, ROWS) with m rows from `start` on, on the scale of the clusters; whether the fence has moved a value, -1
   where one is no number or too large. */
INLINE int NAMED(fill_tile)(const column *columns, const scaling *to, Py_ssize_t d, Py_ssize_t start, Py_ssize_t m,
                            double *raw, double *z)
{
    whole is_beyond = {0}, is_fenced = {0};
    for (Py_ssize_t j = 0; j < d; j++) {
        const double low = to->low[j], high = to->high[j];
        NAMED(load)(&columns[j], start, m, raw);
        for (int v = 0; v < VECTORS; v++) {
            const lanes own = NAMED(at)(raw + v * WIDTH);
            is_beyond |= ~((own <= to->most) & (own >= -to->most));
            is_fenced |= (own < low) | (own > high);
        }
        NAMED(bring)(to, j, low, high, raw, z + j * ROWS);
    }
    return NAMED(any)(is_beyond) ? -1 : NAMED(any)(is_fenced);
}

/* Values far off of the m rows of a tile, the first of which is row `start`; 0 where there is no memory. */
INLINE int NAMED(list_far)(const bounds *near, const double *z, Py_ssize_t d, const int64_t *labels, Py_ssize_t start,
                           Py_ssize_t m, list *far)
{
    whole may_be[VECTORS] = {{0}};
    for (Py_ssize_t j = 0; j < d; j++) {
        const double low = near->low[j], high = near->high[j];
        for (int v = 0; v < VECTORS; v++) {
            const lanes own = NAMED(at)(z + j * ROWS + v * WIDTH);
            may_be[v] |= ~((own >= low) & (own <= high));
        }
    }
    for (Py_ssize_t i = 0; i < m; i++) {
        const int64_t at = labels[i] * d;
        if (may_be[i / WIDTH][i % WIDTH] &&
            !add_far(far, start + i, z + i, ROWS, near->centers + at, near->spreads + at, d, near->reach))
            return 0;
    }
    return 1;
}

/* Labels of rows column by column, and their values far off; 0 where a value is no number or too large, -1 where there is
   no memory. */
static int NAMED(label_rows)(const column *columns, const scaling *to, const mixture *all, const bounds *near, Py_ssize_t n,
                             found out, list *far, const room *own)
{
    const Py_ssize_t d = all->d;
    for (Py_ssize_t start = 0; start < n; start += own->rows) {
        const Py_ssize_t m = n - start < own->rows ? n - start : own->rows;
        for (Py_ssize_t tile = 0; tile < m; tile += ROWS) {
            const Py_ssize_t here = m - tile < ROWS ? m - tile : ROWS;
            own->fenced[tile] = NAMED(fill_tile)(columns, to, d, start + tile, here, own->raw, own->columns + tile * d);
            if (own->fenced[tile] < 0)
                return 0;
        }
        NAMED(judge_room)(all, own, m, NAMED(from)(out, start));
        for (Py_ssize_t tile = 0; tile < m; tile += ROWS) {
            const Py_ssize_t here = m - tile < ROWS ? m - tile : ROWS;
            double *z = own->columns + tile * d;
            for (Py_ssize_t j = 0; own->fenced[tile] && j < d; j++) { /* what is far off is seen before the fence */
                NAMED(load)(&columns[j], start + tile, here, own->raw);
                NAMED(bring)(to, j, -INFINITY, INFINITY, own->raw, z + j * ROWS);
            }
            if (!NAMED(list_far)(near, z, d, out.label + start + tile, start + tile, here, far))
                return -1;
        }
    }
    return 1;
}

INLINE double NAMED(product)(const double *a, const double *b, Py_ssize_t d)
{
    double sums[PARTS] = {0};
    Py_ssize_t j = 0;
    for (; j + PARTS <= d; j += PARTS)
        for (int i = 0; i < PARTS; i++)
            sums[i] += a[j + i] * b[j + i];
    double sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    for (; j < d; j++)
        sum += a[j] * b[j];
    return sum;
}

static void NAMED(walk_rows)(const double *x, Py_ssize_t n, Py_ssize_t d, const double *axes, const double *offsets,
                             const int64_t *sides, int64_t *groups)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        int64_t at = 0;
        while (at >= 0)
            at = sides[2 * at + (NAMED(product)(x + i * d, axes + at * d, d) > offsets[at])];
        groups[i] = -1 - at;
    }
}

static void NAMED(scale_rows)(const double *x, Py_ssize_t n, Py_ssize_t d, const double *low, const double *high,
                              const double *means, const double *scales, double most, double *z)
{
    for (Py_ssize_t i = 0; i < n; i++, x += d, z += d)
        for (Py_ssize_t j = 0; j < d; j++) { /* NaN is neither below nor above */
            double value = x[j] < low[j] ? low[j] : x[j];
            value = ((value > high[j] ? high[j] : value) - means[j]) / scales[j];
            value = value < -most ? -most : value;
            z[j] = value > most ? most : value;
        }
}

static int NAMED(has_far)(const double *row, const double *center, const double *spread, Py_ssize_t d, double nearly)
{
    int is_far = 0;
    for (Py_ssize_t j = 0; j < d; j++)
        is_far |= fabs(row[j] - center[j]) > nearly * spread[j];
    return is_far;
}

static int NAMED(within)(const double *x, Py_ssize_t n, double most)
{
    int64_t n_beyond = 0;
    for (Py_ssize_t i = 0; i < n; i++)
        n_beyond += !(fabs(x[i]) <= most);
    return !n_beyond;
}

#undef lanes
#undef whole
#endif
