package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"example.com/trawl/pkg/crawl"
)

// keyring knows which key belongs to which tenant. It holds digests only, so
// that neither a dump of memory nor a careless log shows a key.
type keyring struct {
	digests [][sha256.Size]byte
	tenants []string
}

func newKeyring(keys map[string][]string) (keyring, error) {
	var k keyring
	owner := map[[sha256.Size]byte]string{}
	for tenant, of := range keys {
		if !crawl.ValidTenant(tenant) {
			return k, fmt.Errorf("%q cannot name a tenant", tenant)
		}
		for _, key := range of {
			d := sha256.Sum256([]byte(key))
			if other, taken := owner[d]; taken {
				return k, fmt.Errorf("tenants %q and %q share a key", other, tenant)
			}
			owner[d] = tenant
			k.digests, k.tenants = append(k.digests, d), append(k.tenants, tenant)
		}
	}
	return k, nil
}

// tenant returns whose key it is, "" for nobody's. It looks at every key
// whatever it finds: how long it takes says nothing about how much was right.
func (k keyring) tenant(key string) string {
	d := sha256.Sum256([]byte(key))
	found := -1
	for i := range k.digests {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(d[:], k.digests[i][:]), i, found)
	}
	if found < 0 {
		return ""
	}
	return k.tenants[found]
}

var errNoCredential = errors.New("no credential")

// credential returns the key that a request carries, in Authorization as a
// bearer token (RFC 6750) or in X-API-Key. Given both ways, or twice, it must be
// the same: the first of two would be taken by one hop and the last by another.
func credential(h http.Header) (string, error) {
	given := append([]string{}, h.Values("X-API-Key")...)
	for _, v := range h.Values("Authorization") {
		scheme, token, _ := strings.Cut(v, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return "", errNoCredential
		}
		given = append(given, strings.TrimSpace(token))
	}
	if len(given) == 0 {
		return "", errNoCredential
	}
	for _, g := range given[1:] {
		if g != given[0] {
			return "", errNoCredential
		}
	}
	return given[0], nil
}

// authenticate names the tenant of a request, or says that there is none. It
// does not say what was wrong with a key.
func (s *Server) authenticate(x *exchange) error {
	key, err := credential(x.c.Request.Header)
	if err == nil {
		x.tenant = s.keys.tenant(key)
	}
	if x.tenant == "" {
		return crawl.Faultf(crawl.CodeUnauthenticated,
			"This needs an API key of the service, as Authorization: Bearer KEY or X-API-Key: KEY.")
	}
	return nil
}
