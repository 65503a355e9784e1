package replica

import (
	"sync"
	"time"
)

// The log names a rejection once a minute: a replica with a wrong certificate tries again every
// second. It has at most rejectionLines different ones in a minute.
const (
	rejectionEvery = time.Minute
	rejectionLines = 10
)

// rejections are the connections and messages of other replicas that were rejected recently.
type rejections struct {
	mu    sync.Mutex
	began time.Time
	said  map[string]bool
}

// log reports whether to log a line.
func (l *rejections) log(line string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.said == nil || now.Sub(l.began) >= rejectionEvery {
		l.began, l.said = now, map[string]bool{}
	}
	if l.said[line] || len(l.said) == rejectionLines {
		return false
	}
	l.said[line] = true
	return true
}

// reject counts a rejection of a connection, a message or a forwarded write, and reports whether
// to log it.
func (x *exchange) reject(of string, err error) bool {
	x.r.metrics.rejected.Inc()
	return x.rejections.log(of+": "+err.Error(), time.Now())
}
