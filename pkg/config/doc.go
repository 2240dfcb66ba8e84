// Package config reads the settings of the processes from the environment
// and from flags of the same names: TRAWL_REDIS_URL is --redis-url. A flag wins.
// A setting that can hold a secret may be given as a file instead, in the name
// with _FILE (--redis-url-file), so that it appears neither in the environment
// nor in the list of processes.
//
// Every fault is reported at once, with the name of its setting, because a
// deployment that learns of one typo a restart takes all day. A TRAWL_ name that
// no process knows is a fault too: it is a typo, and its default would be used in
// silence. The names of all processes are known to each, since one environment
// usually serves them.
//
// The package imports nothing else of Trawl. What a setting means in the domain
// (which sources, which addresses) is parsed by the mains, whose faults join
// these: see [In].
package config
