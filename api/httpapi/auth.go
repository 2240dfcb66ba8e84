package httpapi

import (
	"context"
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

// authenticate finds the tenant of a request and what holds for it, or says that there is
// none. It does not say what was wrong with a key.
func (s *Server) authenticate(x *exchange) error {
	acct, err := s.caller(x.c.Request.Context(), x.c.Request.Header)
	if err != nil {
		return err
	}
	x.tenant = acct.Name
	switch {
	case acct.Name == "":
		return unauthenticated("This needs an API key of the service, as Authorization: Bearer KEY or X-API-Key: KEY.")
	case acct.Suspended:
		// Said to who has a right key only, and so no hint for others.
		return unauthenticated("The tenant of this key is suspended: the service answers none of its calls. " +
			"Ask whoever runs the service; accepted jobs go on meanwhile.")
	}
	x.acct = acct
	return nil
}

// caller returns the account of who sent a header, [nobody] for nobody known.
func (s *Server) caller(ctx context.Context, h http.Header) (*account, error) {
	if sent := h.Values(headerGatewaySecret); len(sent) > 0 {
		name, err := s.gatewayTenant(sent, h.Values(headerTenantID))
		if err != nil {
			return nil, err
		}
		return s.accounts.named(ctx, name)
	}
	// Without the secret X-Tenant-ID is not even looked at: the key decides.
	key, err := credential(h)
	if err != nil {
		return nobody, nil //nolint:nilerr // what is wrong with a credential is not said
	}
	if name := s.keys.tenant(key); name != "" {
		return s.accounts.named(ctx, name)
	}
	return s.accounts.ofKey(ctx, key)
}

// What a gateway sends: who it is, and for whom. Authorization is its own affair then.
const (
	headerGatewaySecret = "X-Gateway-Secret"
	headerTenantID      = "X-Tenant-ID"
)

// gatewayTenant returns the tenant that a gateway names. A secret that is wrong, or sent to a
// service that has none, is refused even beside a good key: who sends one means to call for
// the tenant it names, and would be answered for another.
func (s *Server) gatewayTenant(secrets, names []string) (string, error) {
	if len(secrets) != 1 || !s.gateway.opens(secrets[0]) {
		return "", unauthenticated("X-Gateway-Secret is not that of this service. " +
			"Send the right one, once, or none and an API key.")
	}
	switch {
	case len(names) == 0:
		return "", malformed("X-Tenant-ID is missing: a gateway names the tenant in it with each call.")
	case len(names) > 1:
		return "", malformed("X-Tenant-ID is given more than once. Give it once.")
	case !crawl.ValidTenant(names[0]):
		return "", malformed("X-Tenant-ID does not name a tenant. %s", tenantRule)
	}
	return names[0], nil
}

// tenantRule is what [crawl.ValidTenant] holds, for a person.
const tenantRule = "A name has 1 to 63 characters of a-z, 0-9, - and _ and begins with a letter or digit."

// authenticateAdmin lets the admin key through, and no key of a tenant.
func (s *Server) authenticateAdmin(x *exchange) error {
	if key, err := credential(x.c.Request.Header); err != nil || !s.admin.opens(key) {
		return unauthenticated("This needs the admin key of the service, as Authorization: Bearer KEY or X-API-Key: KEY.")
	}
	return nil
}

func unauthenticated(message string) error {
	return crawl.Faultf(crawl.CodeUnauthenticated, "%s", message)
}

// secret is what one caller must know, as a digest. The zero value opens to nobody.
type secret struct {
	digest [sha256.Size]byte
	set    bool
}

func newSecret(s string) secret { return secret{digest: sha256.Sum256([]byte(s)), set: s != ""} }

// opens compares in constant time. Digests have one length whatever was sent, so that not
// even the length of the secret shows.
func (s secret) opens(given string) bool {
	d := sha256.Sum256([]byte(given))
	return subtle.ConstantTimeCompare(d[:], s.digest[:]) == 1 && s.set
}

// distinct holds that the secrets of a service are different ones: each opens one thing.
func distinct(k keyring, admin, gateway string) error {
	var faults []error
	for name, secret := range map[string]string{"TRAWL_ADMIN_KEY": admin, "TRAWL_GATEWAY_SECRET": gateway} {
		if tenant := k.tenant(secret); secret != "" && tenant != "" {
			faults = append(faults,
				fmt.Errorf("%s is also a key of tenant %q; give each a secret of its own", name, tenant))
		}
	}
	if admin != "" && admin == gateway {
		faults = append(faults,
			errors.New("TRAWL_ADMIN_KEY and TRAWL_GATEWAY_SECRET are the same; give each a secret of its own"))
	}
	return errors.Join(faults...)
}
