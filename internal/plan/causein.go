package plan

import (
	"slices"
	"strings"
)

// NoCause is the reason of a change of which no cause is known.
const NoCause = "to the shares that were computed for the present demand"

// pace are parts of clauses that tell how far one decision went, or in how many decisions
// more something happens.
var pace = []string{" of the requests moved toward ", " of the requests, for ", "then it gets none"}

// CauseIn returns what the reason of a change says of its cause, without what it says of that
// one decision: of several decisions together that is not true. NoCause, if nothing is left.
func CauseIn(reason string) string {
	clauses := slices.DeleteFunc(strings.Split(reason, "; "), func(clause string) bool {
		return strings.HasPrefix(clause, "and ") && strings.HasSuffix(clause, " more") ||
			slices.ContainsFunc(pace, func(part string) bool { return strings.Contains(clause, part) })
	})
	if len(clauses) == 0 {
		return NoCause
	}
	return strings.Join(clauses, "; ")
}
