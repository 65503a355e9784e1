// Package ending decides how long a replica of a group that ends while its clients drop requests waits:
// drops end before the last replica does, and a supervisor stops all of them at about the same time.
package ending

import "time"

const (
	// finalMost is how long a replica that ends while clients drop requests waits until it
	// knows whether all others end, too.
	// A follower waits for as long again, for the leader to take the drops back.
	finalMost = 500 * time.Millisecond
	// claimMost is how long a replica that has won the election waits from then on until it
	// leads and has taken over.
	claimMost = 3 * time.Second
	// leaseMost is how long a replica that no other one outlives waits for leadership: for the
	// longest lease, that of Kubernetes, to run out (15 s after another replica saw the last
	// renewal, for which it looks every 2 s), and for the attempt to win it.
	leaseMost = 19 * time.Second
	// answerMost is how long a leader waits, as it ends, for replicas that do not answer: so long
	// after its death a replica may look alive, and the drops can't be taken back while one does.
	answerMost = 3 * time.Second
)

// State is how a replica that ends stands in its group. At most one of the roles is set.
type State struct {
	Follows bool
	Claims  bool // it won the election, and does not lead yet
	Leads   bool // it may publish a plan, also as the caretaker
	Last    bool // it leads, and no other live replica stays
	Closing bool // it may have to publish the group's last plan
}

// Wait is the wait of a replica that ends. The replica looks again and again, until it has taken the
// drops back, another one has, or the wait is over.
type Wait struct {
	decided bool          // it led as the wait began
	failed  bool          // it could not take drops back, and tries again
	won     time.Duration // when it won; the time of the last look while it follows and has not won before
}

// New returns the wait of a replica; decided says that it led.
func New(decided bool) *Wait { return &Wait{decided: decided} }

// TakesBack reports whether the replica takes the drops back now, the given time after the wait began.
func (w *Wait) TakesBack(waited time.Duration, s State) bool {
	if s.Follows && !w.failed {
		w.won = waited
	}
	return s.Leads && s.Last
}

// Failed notes that the drops could not be taken back.
func (w *Wait) Failed() { w.failed = true }

// Over reports whether the replica leaves without having taken drops back.
func (w *Wait) Over(waited time.Duration, s State) bool {
	most := 2 * finalMost
	switch {
	case s.Closing && w.decided:
		most = answerMost
	case s.Closing:
		most = leaseMost
	case w.decided:
		most = finalMost
	}
	if s.Claims || w.failed {
		most = max(most, w.won+claimMost)
	}
	return waited >= most
}
