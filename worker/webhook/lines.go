package webhook

import "slices"

// lines has, by receiver, the tenants whose events wait for it, who came first at the head. A
// tenant that was served and has more joins again behind the others: so each has its turn,
// however many events one of them has. A receiver that nobody waits for has no entry.
type lines map[string][]string

// join puts a tenant at the end of a receiver's line, unless it stands there.
func (l lines) join(receiver, tenant string) {
	if !slices.Contains(l[receiver], tenant) {
		l[receiver] = append(l[receiver], tenant)
	}
}

// leave takes a tenant out of a receiver's line.
func (l lines) leave(receiver, tenant string) {
	line := slices.DeleteFunc(l[receiver], func(t string) bool { return t == tenant })
	if l[receiver] = line; len(line) == 0 {
		delete(l, receiver)
	}
}

// first answers who waits first among those that may have something now.
func (l lines) first(receiver string, admits func(tenant string) bool) (tenant string, ok bool) {
	i := slices.IndexFunc(l[receiver], admits)
	if i < 0 {
		return "", false
	}
	return l[receiver][i], true
}
