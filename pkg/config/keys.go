package config

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Bounds of an API key, in bytes. Sixteen random characters of an alphabet of 62
// are 95 bits, which nobody guesses; a shorter key is a word that somebody chose.
const (
	minKey = 16
	maxKey = 256
)

// tenantForm is that of a tenant's name everywhere in Trawl: it becomes part of
// key names. It stands here again because this package knows no other; the
// domain checks it once more.
var tenantForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// Keys holds the API keys of each tenant. It prints as a number, never as the keys.
type Keys map[string][]string

// String returns how many keys of how many tenants there are.
func (k Keys) String() string {
	n := 0
	for _, keys := range k {
		n += len(keys)
	}
	return counted(n, "key") + " of " + counted(len(k), "tenant")
}

func counted(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return strconv.Itoa(n) + " " + what
}

// GoString keeps %#v from printing the keys.
func (k Keys) GoString() string { return k.String() }

// MarshalText keeps encoders from writing the keys.
func (k Keys) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// keyFault says what is wrong with a key, "" for nothing. It does not repeat it.
func keyFault(key string) string {
	switch {
	case len(key) < minKey || len(key) > maxKey:
		return fmt.Sprintf("a key has %d to %d characters", minKey, maxKey)
	case strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "a key has visible ASCII characters only"
	}
	return ""
}

// parseKeys reads tenant:key,tenant:key. Entries are trimmed and empty ones,
// as after a last comma, left out. No message holds a key, or what might be one:
// an entry is named by its place.
func parseKeys(s string) (Keys, []string) {
	keys := Keys{}
	owner := map[string]string{}
	var faults []string
	n := 0
	for entry := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == ',' || r == '\n' }) {
		entry = strings.TrimSpace(entry)
		if entry == "" {
			continue
		}
		n++
		tenant, key, found := strings.Cut(entry, ":")
		switch {
		case !found:
			faults = append(faults, fmt.Sprintf("entry %d is not tenant:key", n))
		case !tenantForm.MatchString(tenant):
			faults = append(faults, fmt.Sprintf(
				"entry %d: a tenant's name has 1 to 63 characters of a-z, 0-9, - and _ and begins with a letter "+
					"or digit", n))
		case keyFault(key) != "":
			faults = append(faults, fmt.Sprintf("entry %d (tenant %s): %s", n, tenant, keyFault(key)))
		case owner[key] != "":
			faults = append(faults, fmt.Sprintf(
				"entry %d (tenant %s): the same key was given to tenant %s before; a key names one tenant",
				n, tenant, owner[key]))
		default:
			owner[key] = tenant
			keys[tenant] = append(keys[tenant], key)
		}
	}
	return keys, faults
}
