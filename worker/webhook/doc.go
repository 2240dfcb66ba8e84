// Package webhook delivers the events of jobs to the receivers that their submitters named,
// as Standard Webhooks 1.0 says (standardwebhooks.com): at least once, each under an id that
// is the same at every try, those of one job in their order. What is to be delivered, to
// whom and when is the store's; this package makes the requests.
//
// A receiver is a stranger's machine. It is reached through the dial guard alone, gets one
// request and no second (no redirect is followed, nothing is sent again by the transport),
// and can cost neither more than [Timeout] nor the deliveries of others their place.
package webhook
