// Package obs is the home of what an operator sees: the logger and its level, the
// metrics registry, the traces, the endpoints that say whether a process is well,
// and what systemd is told of it. It imports
// nothing else of Trawl, so that every package may be observed by it.
package obs
