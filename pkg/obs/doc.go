// Package obs is the home of what an operator sees: the logger, the metrics
// registry and the endpoints that say whether a process is well. It imports
// nothing else of Trawl, so that every package may be observed by it.
package obs
