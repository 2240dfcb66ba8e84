package httpapi

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"example.com/trawl/pkg/crawl"
)

// behind sends what a gateway sends.
func behind(secret string, tenants ...string) func(*http.Request) {
	return func(r *http.Request) {
		header(headerGatewaySecret, secret)(r)
		header(headerTenantID, tenants...)(r)
	}
}

// X-Tenant-ID is believed together with the secret of the gateway, and never without it.
// SEC-10: what could not name a tenant never reaches the store.
func TestGateway(t *testing.T) {
	t.Parallel()
	type call = []func(*http.Request)
	noKey := header("Authorization")
	for name, tt := range map[string]struct {
		edit   call
		status int
		tenant string // that the call was answered for
		say    string // in the detail
	}{
		"names the tenant":           {call{behind(gatewaySecret, "c"), noKey}, 200, "c", ""},
		"beside a key":               {call{behind(gatewaySecret, "c")}, 200, "c", ""},
		"beside a wrong key":         {call{behind(gatewaySecret, "c"), with("its own affair")}, 200, "c", ""},
		"beside two keys":            {call{behind(gatewaySecret, "c"), header("X-API-Key", keyB)}, 200, "c", ""},
		"a tenant with a record":     {call{behind(gatewaySecret, "kept"), noKey}, 200, "kept", ""},
		"a suspended tenant":         {call{behind(gatewaySecret, "halted"), noKey}, 401, "", "suspended"},
		"no secret":                  {call{header(headerTenantID, "c")}, 200, "a", ""},
		"no secret, no name":         {call{header(headerTenantID, "../x\r\n")}, 200, "a", ""},
		"no secret and no key":       {call{header(headerTenantID, "c"), noKey}, 401, "", "API key"},
		"wrong secret":               {call{behind(gatewaySecret+"x", "c"), noKey}, 401, "", "X-Gateway-Secret"},
		"wrong secret, good key":     {call{behind("wrong", "c")}, 401, "", "X-Gateway-Secret"},
		"wrong secret, key's tenant": {call{behind("wrong", "a")}, 401, "", "X-Gateway-Secret"},
		"wrong secret, no tenant":    {call{header(headerGatewaySecret, "wrong")}, 401, "", "X-Gateway-Secret"},
		"empty secret":               {call{behind("", "c")}, 401, "", "X-Gateway-Secret"},
		"admin key as secret":        {call{behind(adminKey, "c")}, 401, "", "X-Gateway-Secret"},
		"secret twice":               {call{behind("", "c"), header(headerGatewaySecret, gatewaySecret, gatewaySecret)}, 401, "", "once"},
		"secret and a wrong one":     {call{behind("", "c"), header(headerGatewaySecret, gatewaySecret, "wrong")}, 401, "", "once"},
		"secret as a key":            {call{with(gatewaySecret)}, 401, "", "API key"},
		"no tenant":                  {call{header(headerGatewaySecret, gatewaySecret)}, 400, "", "X-Tenant-ID is missing"},
		"tenant twice":               {call{behind(gatewaySecret, "a", "c")}, 400, "", "once"},
		"the same tenant twice":      {call{behind(gatewaySecret, "a", "a")}, 400, "", "once"},
		"empty tenant":               {call{behind(gatewaySecret, "")}, 400, "", "1 to 63 characters"},
		"upper case":                 {call{behind(gatewaySecret, "C")}, 400, "", "1 to 63 characters"},
		"path":                       {call{behind(gatewaySecret, "../c")}, 400, "", "1 to 63 characters"},
		"hash tag":                   {call{behind(gatewaySecret, "c}{t:a")}, 400, "", "1 to 63 characters"},
		"two in one":                 {call{behind(gatewaySecret, "a,c")}, 400, "", "1 to 63 characters"},
		"quotes":                     {call{behind(gatewaySecret, `"c"`)}, 400, "", "1 to 63 characters"},
		"control":                    {call{behind(gatewaySecret, "c\x1b[31m")}, 400, "", "1 to 63 characters"},
		"long":                       {call{behind(gatewaySecret, strings.Repeat("c", 64))}, 400, "", "1 to 63 characters"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTenantsBench(t, nil)
			b.keep(crawl.Tenant{Name: "kept"})
			b.keep(crawl.Tenant{Name: "halted", Suspended: true})
			b.tenants.meet = func(_, of string) {
				if !crawl.ValidTenant(of) {
					t.Errorf("the store is asked for %q", of)
				}
			}
			a := b.list(tt.edit...)
			switch tt.status {
			case 200:
				if a.status != 200 || b.listed[0].Tenant != tt.tenant {
					t.Errorf("%d %s, listed %+v", a.status, a.body, b.listed)
				}
			case 401:
				a.wantProblem(t, 401, crawl.CodeUnauthenticated)
			default:
				a.wantProblem(t, tt.status, crawl.CodeMalformed)
			}
			if !strings.Contains(a.body, tt.say) {
				t.Errorf("%q is not in %s", tt.say, a.body)
			}
			if tt.status != 200 && len(b.listed) > 0 {
				t.Errorf("listed %+v", b.listed)
			}
			if logs := b.logs.String(); strings.Contains(logs, gatewaySecret) || strings.Contains(logs, `\u001b`) {
				t.Errorf("logged: %s", logs)
			}
		})
	}
}

// A service without a gateway refuses what calls itself one: it would be answered for the
// tenant of its key, and not for the one that it names.
func TestNoGateway(t *testing.T) {
	t.Parallel()
	b := newTenantsBench(t, func(o *Options) { o.GatewaySecret = "" })
	for _, secret := range []string{gatewaySecret, "", "x"} {
		b.list(behind(secret, "a")).wantProblem(t, 401, crawl.CodeUnauthenticated)
	}
	if a := b.list(header(headerTenantID, "b")); a.status != 200 || b.listed[0].Tenant != "a" {
		t.Errorf("%d %s, listed %+v", a.status, a.body, b.listed)
	}
	if a := b.call("GET", openAPIPath, ""); strings.Contains(a.body, headerGatewaySecret) {
		t.Error("the document tells of a gateway")
	}
	if a := newTenantsBench(t, nil).call("GET", openAPIPath, ""); !strings.Contains(a.body, headerGatewaySecret) {
		t.Error("the document does not tell of the gateway")
	}
}

// What a gateway's tenant may do is what is kept under its name.
func TestBoundsBehindAGateway(t *testing.T) {
	t.Parallel()
	b := newTenantsBench(t, nil)
	b.keep(crawl.Tenant{Name: "c", Sources: []string{"only.test"}})
	p := b.call("POST", "/v1/jobs", `{"urls":["https://other.test/"]}`, behind(gatewaySecret, "c")).
		wantProblem(t, 422, crawl.CodeSourceNotAllowed)
	if !strings.Contains(p.Errors[0].Message, "https://other.test/") || !strings.Contains(p.Errors[0].Message, "only.test") {
		t.Errorf("the refusal does not name the URL and the rule: %q", p.Errors[0].Message)
	}
	if a := b.call("POST", "/v1/jobs", `{"urls":["https://other.test/"]}`, behind(gatewaySecret, "d")); a.status != 202 {
		t.Errorf("a tenant without a record: %d %s", a.status, a.body)
	}
	// The same name by a key of the admin API is the same tenant.
	key := b.tenants.key("c", time.Time{})
	b.call("POST", "/v1/jobs", `{"urls":["https://other.test/"]}`, with(key)).wantProblem(t, 422, crawl.CodeSourceNotAllowed)
}
