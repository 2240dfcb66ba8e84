//go:build race

package main

// raceEnabled reports whether the race detector is on. It allocates for itself, and makes batches late.
const raceEnabled = true
