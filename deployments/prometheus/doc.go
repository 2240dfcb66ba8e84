// Package prometheus holds what Prometheus needs to watch Trawl: prometheus.yml, the rules, and tests
// of both. There is no code in it but the tests, which hold rules and dashboard to the metrics
// that a real service exports.
package prometheus
