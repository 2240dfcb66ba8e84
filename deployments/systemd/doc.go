// Package systemd holds the tests of the units beside it.
package systemd
