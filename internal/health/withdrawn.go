package health

import "slices"

// withdraw marks the endpoints that are out of use whatever checkers find: by
// an operator's override, or as configured. They are most likely about to be
// stopped, so that their failure is no surprise: they make no mass flip, are
// not held, and are no evidence for or against others. It tells whether
// operators changed anything.
func (b *VerdictTable) withdraw(operators Table, synced bool) (changed bool) {
	if !synced && slices.Equal(operators.overrides, b.overrides) {
		return false
	}
	b.overrides = operators.overrides
	for _, l := range b.services {
		for i := range l.records {
			r := &l.records[i]
			status := r.configured
			if at, found := operators.find(Key{Service: l.name, Address: r.address}); found {
				status = operators.overrides[at].Status
			}
			r.withdrawn = down(status)
		}
	}
	return true
}
