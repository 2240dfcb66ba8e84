// Package crawler advances jobs: it takes rings, and for each serves one slice of a
// job: lease, host slots, fetch, commit. Beside that it sweeps, so that whatever a
// killed worker, a lost ring or a slow cancel left behind is healed by any other
// worker.
//
// A slice is one goroutine that owns all its state and all its round trips, one that
// renews its lease, and one for each page in flight. The loop sends everything that
// is ready in one pipeline and, while that is under way, the next results gather: on
// a fast site the pipelines grow by themselves, on a slow one no result waits.
package crawler
