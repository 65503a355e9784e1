package lrs

import "sync"

const (
	// DefaultReportMemory bounds the reports of all clients that wait for the collector, in bytes.
	DefaultReportMemory = 768 << 20
	// accountReports is the part of it that one address without certificate may use.
	accountReports = 8
	// modestReport is the size of the reports that a stream may always have waiting, in bytes:
	// one report of some fifty services in three localities. So the server accepts reports of the
	// clients behind one NAT address.
	modestReport = 16 << 10
)

// reportBudget bounds the memory of reports that wait for the collector. A client writes a
// megabyte of them in a few kilobytes, and tens of thousands of streams may report until the
// next tick.
type reportBudget struct {
	most int

	mu       sync.Mutex
	used     int
	accounts map[string]int  // of addresses without certificate
	handed   [2]int          // the size of the last collection, and the account with most
	full     map[string]bool // accounts with a refused report since the last collection; "" = all accounts
}

// take counts a report of an account, "" = none, and reports whether there is memory for it.
// One that has to be taken counts anyway.
func (b *reportBudget) take(account string, bytes int, anyway bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.full == nil {
		b.full, b.accounts = map[string]bool{}, map[string]int{}
	}
	ofAccount := account != "" && b.accounts[account]+bytes > b.most/accountReports
	if ofAll := b.used+bytes > b.most; !anyway && (ofAll || ofAccount) {
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

// isFull reports whether a report of an account was refused since the last collection. Large
// ones need not be read then.
func (b *reportBudget) isFull(account string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.full[account] || b.full[""]
}

// collected forgets all reports: the collector has them.
func (b *reportBudget) collected() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.handed = [2]int{b.used, b.fullest()}
	b.used = 0
	clear(b.accounts)
	clear(b.full)
}

// use returns the size of all reports that wait, or that the collector has: until the next
// collection these are in memory, too. And the same of the account with most.
func (b *reportBudget) use() (all, fullest int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(b.used, b.handed[0]), max(b.fullest(), b.handed[1])
}

// fullest returns the account with most, and its size. The lock is held.
func (b *reportBudget) fullest() (most int) {
	for _, n := range b.accounts {
		most = max(most, n)
	}
	return most
}
