package main

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"example.com/trawl/pkg/crawl"
)

// parseURLs reads the URLs of the command line. The error names all that are none.
func parseURLs(args []string) ([]crawl.URL, error) {
	var (
		urls   []crawl.URL
		faults []string
	)
	for _, arg := range args {
		u, fault := parseURL(arg)
		if fault != "" {
			faults = append(faults, fault)
			continue
		}
		urls = append(urls, u)
	}
	if faults != nil {
		return nil, badUsage(faults...)
	}
	return urls, nil
}

// parseURL reads one URL; fault says for a person why it is none, and what may be meant.
func parseURL(arg string) (u crawl.URL, fault string) {
	scheme, rest, found := strings.Cut(arg, "://")
	scheme = strings.ToLower(scheme)
	switch {
	case found && (scheme == "http" || scheme == "https"):
		u, err := crawl.ParseURL(arg)
		switch std, errStd := url.Parse(arg); {
		case errStd == nil && std.User != nil:
			return crawl.URL{}, shownURL(arg) + " holds a user name or password: leave out what stands before the @."
		case err != nil:
			return crawl.URL{}, shownURL(arg) + " is no URL that can be crawled: " + reason(err) + "."
		}
		return u, ""
	case found && !almostHTTP(scheme):
		return u, shownURL(arg) + " cannot be crawled: only http:// and https:// can."
	case !found:
		rest = withoutScheme(arg)
	}
	guess := "https://"
	if scheme == "htp" || scheme == "ttp" || onThisMachine(rest) {
		guess = "http://"
	}
	fault = shownURL(arg) + " is no URL"
	if meant, err := crawl.ParseURL(guess + rest); err == nil && likely(meant) {
		return u, fault + ": did you mean " + meant.String() + " ?"
	}
	return u, fault + ": write it like https://docs.example.org/."
}

// reason returns what a fault of the domain says to a person.
func reason(err error) string {
	var text string
	if fault, ok := err.(*crawl.Fault); ok { //nolint:errorlint // ParseURL returns it unwrapped, by its contract
		text = fault.Message
	}
	return strings.TrimSuffix(text, ".")
}

// shownURL returns what was given without the password that may stand in it.
func shownURL(arg string) string {
	if at := strings.LastIndexByte(arg, '@'); at >= 0 {
		return "…" + arg[at:]
	}
	if arg == "" {
		return `""`
	}
	return arg
}

// almostHTTP reports whether a scheme is a slip of the finger away from http or https.
func almostHTTP(scheme string) bool {
	slips := []string{
		"htp", "ttp", "htpp", "hhtp", "hppt", "httpp", "htttp", "thtp", "htt",
		"htps", "ttps", "htpps", "hhtps", "httpss", "htttps", "thtps", "htts", "httsp", "hptts", "httpps",
	}
	return slices.Contains(slips, scheme)
}

// withoutScheme returns arg without what is left of a scheme that lacks a slash or the colon.
func withoutScheme(arg string) string {
	for _, broken := range []string{"https:/", "http:/", "https//", "http//", "//"} {
		if rest, ok := strings.CutPrefix(strings.ToLower(arg), broken); ok {
			return arg[len(arg)-len(rest):]
		}
	}
	return arg
}

// onThisMachine reports whether rest, a URL without its scheme, leads to this machine or
// to an address: there http is more likely than https.
func onThisMachine(rest string) bool {
	u, err := url.Parse("//" + rest)
	if err != nil {
		return false
	}
	_, err = netip.ParseAddr(u.Hostname())
	return err == nil || isLocalhost(u.Hostname())
}

func isLocalhost(host string) bool {
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// likely reports whether a host that was guessed can be meant: a single word is rather a
// file or a command.
func likely(u crawl.URL) bool {
	host := u.Hostname()
	return isLocalhost(host) || strings.ContainsAny(strings.Trim(host, "."), ".:")
}
