package xds

import "fmt"

// What clients that poll cost, in bytes, estimated. They leave nothing open
// that would have to be paid for on their side, so that what they make the
// server remember for the time of a lease has to be bounded as a whole.
const (
	pollerCost = 1024 // of a client
	sentCost   = 128  // of a name, for each client: what it was told
	nameCost   = 1024 // of a name, for each locality and form: that somebody wants it, and what there is
)

// pollBudget counts what clients that poll cost. Guarded by Server.mu.
type pollBudget struct {
	used   int
	lists  map[polledList]int     // how many clients hold it
	groups map[*localityGroup]int // how many clients are there

	accounts map[string]*polledAccount
}

// polledAccount is what the clients have that count under one account.
type polledAccount struct {
	clients int
	groups  map[*localityGroup]int
}

// polledList is what clients share that ask for the same.
type polledList struct {
	group *localityGroup
	key   pollKey // without what tells clients apart
}

func listOf(z *localityGroup, key pollKey) polledList {
	return polledList{z, pollKey{url: key.url, as: key.as, names: key.names}}
}

// take counts a client, unless it is beyond a bound: that of memory, or half of
// the localities, so that the others remain for clients with streams. One account
// gets half of each: it leaves nothing open that would have to be paid for.
func (b *pollBudget) take(z *localityGroup, key pollKey, account string, o *Options) error {
	list, cost := listOf(z, key), ownCost(key)
	if b.lists[list] == 0 {
		cost += sharedCost(key)
	}
	most, have := (o.MaxLocalities+1)/2, b.accounts[account]
	switch {
	case have != nil && 2*have.clients >= o.MaxStreams:
		return fmt.Errorf("%w clients that poll from one address: %d are known", errFull, have.clients)
	case have != nil && have.groups[z] == 0 && len(have.groups) >= (most+1)/2:
		return fmt.Errorf("%w localities of clients that poll from one address: %d are served", errFull, len(have.groups))
	case b.used+cost > o.PollMemory:
		return fmt.Errorf("%w names that clients poll for: they take %d bytes", errFull, b.used)
	case b.groups[z] == 0 && len(b.groups) >= most:
		return fmt.Errorf("%w localities of clients that poll: %d are served", errFull, len(b.groups))
	}
	if b.lists == nil {
		b.lists, b.groups, b.accounts = map[polledList]int{}, map[*localityGroup]int{}, map[string]*polledAccount{}
	}
	if account != "" {
		if have == nil {
			have = &polledAccount{groups: map[*localityGroup]int{}}
			b.accounts[account] = have
		}
		have.clients++
		have.groups[z]++
	}
	b.used += cost
	b.lists[list]++
	b.groups[z]++
	return nil
}

// release takes back what take has counted.
func (b *pollBudget) release(z *localityGroup, key pollKey, account string) {
	if have := b.accounts[account]; have != nil {
		if have.groups[z]--; have.groups[z] == 0 {
			delete(have.groups, z)
		}
		if have.clients--; have.clients == 0 {
			delete(b.accounts, account)
		}
	}
	list := listOf(z, key)
	b.used -= ownCost(key)
	if b.lists[list]--; b.lists[list] == 0 {
		delete(b.lists, list)
		b.used -= sharedCost(key)
	}
	if b.groups[z]--; b.groups[z] == 0 {
		delete(b.groups, z)
	}
}

func ownCost(key pollKey) int {
	return pollerCost + len(key.id) + sentCost*len(key.names.names)
}

func sharedCost(key pollKey) int {
	return len(key.names.raw) + nameCost*len(key.names.names)
}
