package lrs

import "sync"

const (
	// DefaultReportMemory is how much memory the reports of all clients may make the process take,
	// in bytes, until they are collected and released.
	DefaultReportMemory = 768 << 20
	// accountReports is the part of it, one in so many, that one address without certificate may use.
	accountReports = 8
	// modestReport is the size of the reports that a stream may always have waiting, in bytes:
	// one report of some fifty services in three localities. So the server accepts reports of the
	// clients behind one NAT address.
	modestReport = 16 << 10

	// usableReports is the part of the memory, one in so many, that reports may use: the heap grows
	// further before Go collects garbage, and the streams that bring the reports take memory, too:
	// 20,000 goroutines 150 MiB.
	usableReports = 2
)

// reportBudget bounds the memory of reports, from when they are read until the collector has
// released them. A client writes a megabyte of them in a few kilobytes, and tens of thousands of
// streams may report until the next tick.
type reportBudget struct {
	most, mostOfOne int          // bytes: all reports, and those of an account
	beside          func() int64 // see Options.Messages; nil = nothing

	mu       sync.Mutex
	used     int             // that wait, or that the collector has
	handed   int             // of these, those that the collector has
	accounts map[string]int  // of addresses without certificate; reports that wait
	last     [2]int          // the size of the last collection, and the account with most
	full     map[string]bool // accounts with a refused report since the last collection; "" = all accounts
}

// newReportBudget makes a budget with which reports, and the messages of clients beside them, make
// the process take so many bytes.
func newReportBudget(memory int, beside func() int64) reportBudget {
	return reportBudget{
		most: memory / usableReports, mostOfOne: memory / accountReports, beside: beside,
		accounts: map[string]int{}, full: map[string]bool{},
	}
}

// take counts a report of an account, "" = none, and reports whether there is memory for it.
// One that has to be taken counts anyway.
func (b *reportBudget) take(account string, bytes int, anyway bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	ofAccount := account != "" && b.accounts[account]+bytes > b.mostOfOne
	if ofAll := b.used+bytes > b.free(); !anyway && (ofAll || ofAccount) {
		if ofAll {
			account = ""
		}
		b.full[account] = true
		return false
	}
	b.used += bytes
	if account != "" {
		b.accounts[account] += bytes
	}
	return true
}

// free returns how much memory reports may use now. Half of it is theirs whatever messages use: a
// flood of messages does not keep all large reports out. The lock is held.
func (b *reportBudget) free() int {
	if b.beside == nil {
		return b.most
	}
	return b.most - min(int(b.beside()), b.most/2)
}

// isFull reports whether a report of an account was refused since the last collection, or one of
// any account since there was memory last. Large ones need not be read then.
func (b *reportBudget) isFull(account string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.full[account] || b.full[""]
}

// collected counts all reports as those that the collector has. They stay in memory until it has
// released them.
func (b *reportBudget) collected() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= b.handed
	b.handed = b.used
	b.last = [2]int{b.used, b.fullest()}
	clear(b.accounts)
	clear(b.full)
}

// released forgets the reports that the collector has had.
func (b *reportBudget) released() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= b.handed
	b.handed = 0
	delete(b.full, "")
}

// use returns the size of all reports in memory, or that of the last collection if it is more. And
// the same of the account with most.
func (b *reportBudget) use() (all, fullest int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(b.used, b.last[0]), max(b.fullest(), b.last[1])
}

// large reports whether the last collection took so much memory that its buffers are freed: if
// others fill later, with smaller reports, they would be in memory beside these.
func (b *reportBudget) large() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return 2*b.last[0] > b.most || 2*b.last[1] > b.mostOfOne
}

// fullest returns the account with most, and its size. The lock is held.
func (b *reportBudget) fullest() (most int) {
	for _, n := range b.accounts {
		most = max(most, n)
	}
	return most
}
