// Package e2e holds the tests about processes: the programs api and worker as
// they are shipped, on a redis-server of each test's own, spoken to over HTTP
// alone. What is killed, stopped, cut off and started again here is what is
// killed, stopped, cut off and started again where Trawl runs.
package e2e
