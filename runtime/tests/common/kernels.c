// Kernels of the runtime's tests, by the ABI of `plan::KernelArgs`. V is the variant's suffix.
#include <stdint.h>

typedef struct {
    uint32_t version, n_buffers;
    uint8_t *const *buffers;
    const int64_t *params;
    uint8_t *scratch;
    int64_t begin, end;
    int64_t *status;
} Args;

#define NAME2(name, v) name##_##v
#define NAME(name, v) NAME2(name, v)
#define KERNEL(name) void NAME(name, V)(const Args *a)

// y[i] = x[i] * 2 + 1, one item per element
KERNEL(affine) {
    const float *x = (const float *)a->buffers[0];
    float *y = (float *)a->buffers[1];
    if (a->version != 1 || a->n_buffers != 2 || (uintptr_t)a->scratch % 64) { *a->status = 1; return; }
    for (int64_t i = a->begin; i < a->end; i++) y[i] = x[i] * 2 + 1;
}

// y[r] = sum of x[r, :] * w[:], one item per row of p0 columns; scratch holds the products
KERNEL(rowdot) {
    const float *x = (const float *)a->buffers[0], *w = (const float *)a->buffers[1];
    float *y = (float *)a->buffers[2], *t = (float *)a->scratch;
    int64_t n = a->params[0];
    for (int64_t r = a->begin; r < a->end; r++) {
        float sum = 0;
        for (int64_t k = 0; k < n; k++) t[k] = x[r * n + k] * w[k];
        for (int64_t k = 0; k < n; k++) sum += t[k];
        y[r] = sum;
    }
}

// y[i] = table[index[i]], p0 rows in the table
KERNEL(gather) {
    const float *table = (const float *)a->buffers[0];
    const int64_t *index = (const int64_t *)a->buffers[1];
    float *y = (float *)a->buffers[2];
    for (int64_t i = a->begin; i < a->end; i++) {
        int64_t at = index[i];
        if (at < 0 || at >= a->params[0]) { *a->status = 1; at = 0; }
        y[i] = table[at];
    }
}

// y = the positive ones of x[0..p0], count in n; a single item
KERNEL(positive) {
    const float *x = (const float *)a->buffers[0];
    float *y = (float *)a->buffers[1];
    int64_t *n = (int64_t *)a->buffers[2];
    *n = 0;
    for (int64_t i = 0; i < a->params[0]; i++) if (x[i] > 0) y[(*n)++] = x[i];
}

// y = b: 2 for v3, 3 for v4
KERNEL(variant) { for (int64_t i = a->begin; i < a->end; i++) a->buffers[0][i] = LEVEL; }

// y[i] = x[i] ? 7 : 3, on bools
KERNEL(choose) {
    for (int64_t i = a->begin; i < a->end; i++) a->buffers[1][i] = a->buffers[0][i] == 1 ? 7 : a->buffers[0][i] == 0 ? 3 : 0;
}

// y[i] = 1, after about a millisecond
KERNEL(slow) {
    for (int64_t i = a->begin; i < a->end; i++) {
        for (volatile int k = 0; k < 500000; k++) {}
        a->buffers[0][i] = 1;
    }
}

// present[b, t, :] = past[b, t, :], one item per old position; p0 = past, p1 = width, p2 p3 = room of past and present
KERNEL(carry) {
    const float *past = (const float *)a->buffers[0];
    float *present = (float *)a->buffers[1];
    int64_t n = a->params[0], width = a->params[1], room_in = a->params[2], room_out = a->params[3];
    for (int64_t i = a->begin; i < a->end; i++)
        for (int64_t d = 0; d < width; d++)
            present[(i / n * room_out + i % n) * width + d] = past[(i / n * room_in + i % n) * width + d];
}

// present[b, past + s, :] = 2 x[b, s, :] + 1, one item per new position; p0 = seq, p1 = width, p2 = past, p3 = room
KERNEL(append) {
    const float *x = (const float *)a->buffers[0];
    float *present = (float *)a->buffers[1];
    int64_t seq = a->params[0], width = a->params[1], past = a->params[2], room = a->params[3];
    for (int64_t i = a->begin; i < a->end; i++)
        for (int64_t d = 0; d < width; d++)
            present[(i / seq * room + past + i % seq) * width + d] = 2 * x[i * width + d] + 1;
}

// present[b, t, :] from t = kept on: past[b, t, :], and 2 x[b, t - past, :] + 1 behind it, one item per position; p0 =
// positions written, p1 = width, p2 = past, p3 = kept, p4 = seq, p5 p6 = room of past and present
KERNEL(join) {
    const float *x = (const float *)a->buffers[0], *past = (const float *)a->buffers[1];
    float *present = (float *)a->buffers[2];
    const int64_t *p = a->params, n = p[0], width = p[1];
    for (int64_t i = a->begin; i < a->end; i++)
        for (int64_t d = 0; d < width; d++) {
            int64_t b = i / n, t = p[3] + i % n;
            float *to = present + (b * p[6] + t) * width + d;
            *to = t < p[2] ? past[(b * p[5] + t) * width + d] : 2 * x[(b * p[4] + t - p[2]) * width + d] + 1;
        }
}

// y[b, :] = sum over t of (t + 1) present[b, t, :], one item per b; p0 = positions, p1 = width, p2 = room
KERNEL(total) {
    const float *present = (const float *)a->buffers[0];
    float *y = (float *)a->buffers[1];
    int64_t n = a->params[0], width = a->params[1], room = a->params[2];
    for (int64_t b = a->begin; b < a->end; b++)
        for (int64_t d = 0; d < width; d++) {
            float sum = 0;
            for (int64_t t = 0; t < n; t++) sum += (float)(t + 1) * present[(b * room + t) * width + d];
            y[b * width + d] = sum;
        }
}

// y[b, :] = sum of table[ids[b, t], :] over the t that mask[b, t] keeps, one item per b; p0 = positions, p1 = width, p2 =
// rows of the table
KERNEL(embed) {
    const float *table = (const float *)a->buffers[0];
    const int64_t *ids = (const int64_t *)a->buffers[1], *mask = (const int64_t *)a->buffers[2];
    float *y = (float *)a->buffers[3];
    int64_t n = a->params[0], width = a->params[1];
    for (int64_t b = a->begin; b < a->end; b++)
        for (int64_t d = 0; d < width; d++) {
            float sum = 0;
            for (int64_t t = 0; t < n; t++) {
                int64_t id = ids[b * n + t];
                if (id < 0 || id >= a->params[2]) { *a->status = 1; id = 0; }
                if (mask[b * n + t]) sum += table[id * width + d];
            }
            y[b * width + d] = sum;
        }
}

// present[b, past + s] = ids[b, s], one item per new position; p0 = seq, p1 = past, p2 = room
KERNEL(remember) {
    const int64_t *ids = (const int64_t *)a->buffers[0];
    float *present = (float *)a->buffers[1];
    int64_t seq = a->params[0], past = a->params[1], room = a->params[2];
    for (int64_t i = a->begin; i < a->end; i++) present[i / seq * room + past + i % seq] = (float)ids[i];
}

// logits[b, s, v] = -((v - n) mod p3) for the sum n of present[b, :] up to the position: the likeliest token is the sum of
// all; one item per new position; p0 = seq, p1 = past, p2 = room, p3 = tokens that there are
KERNEL(logits) {
    const float *present = (const float *)a->buffers[0];
    float *y = (float *)a->buffers[1];
    int64_t seq = a->params[0], past = a->params[1], room = a->params[2], width = a->params[3];
    for (int64_t i = a->begin; i < a->end; i++) {
        int64_t n = 0;
        for (int64_t t = 0; t <= past + i % seq; t++) n += (int64_t)present[i / seq * room + t];
        for (int64_t v = 0; v < width; v++) y[i * width + v] = -(float)(((v - n) % width + width) % width);
    }
}
