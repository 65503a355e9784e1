package invariant

import "cmp"

// Milder reports whether the violations a do less harm than b. What breaks the
// form of an answer comes first, as clients may refuse it or nobody can tell
// what they make of it; then the traffic that goes where it should not; then
// the number.
func Milder(a, b []Violation) bool {
	return cmp.Or(cmp.Compare(malformed(a), malformed(b)), compareRates(misdirected(a), misdirected(b)), cmp.Compare(len(a), len(b))) < 0
}

func malformed(vs []Violation) int {
	n := 0
	for i := range vs {
		switch vs[i].Rule {
		case RuleCeiling, RuleRounding, RuleEntry, RuleStep, RuleUnhealthy, RuleDrain:
		default:
			n++
		}
	}
	return n
}

func misdirected(vs []Violation) float64 {
	sum := 0.0
	for i := range vs {
		sum += vs[i].Rate
	}
	return sum
}

// sameRate is by how much rates differ that count as the same, relative to the larger.
const sameRate = 1e-9

// compareRates takes rates that differ by rounding for the same.
func compareRates(a, b float64) int {
	if d := a - b; d < sameRate*max(1, a, b) && -d < sameRate*max(1, a, b) {
		return 0
	}
	return cmp.Compare(a, b)
}
