// Package httpapi is the HTTP side of Trawl and the home of gin, with huma on
// it: it turns requests into calls of the store and the doorbell, and their
// answers into documents. It decides nothing about jobs.
//
// Handlers return errors. One place renders them as RFC 9457 problems (problem.go),
// one event a request is logged and counted (exchange.go), and one decoder reads
// what clients send (strict.go). The wire types (wire.go) are the contract; the
// OpenAPI document is generated from them.
package httpapi
