// Package docker holds the tests of the images and of compose.yaml. No container engine is needed:
// what the Dockerfile says is done on this machine, and what it makes runs in a root of its own.
package docker
