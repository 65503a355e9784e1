package xds

import "fmt"

// What clients that poll cost, in bytes, estimated. They leave nothing open
// that would have to be paid for on their side, so that what they make the
// server remember for the time of a lease has to be bounded as a whole.
const (
	pollerCost = 1024 // of a client
	sentCost   = 128  // of a name, for each client: what it was told
	nameCost   = 1024 // of a name, for each locality and form: that a client wants it, and what there is
	emptyCost  = 1536 // of the empty assignment for a name that no service has, for each client

	accountPolls = 4 // the part of the memory for clients that poll which one account may use
)

// pollBudget counts what clients that poll cost. Guarded by Server.mu.
type pollBudget struct {
	used   int
	lists  map[polledList]*polledHolders
	groups map[*localityGroup]int // how many clients are there

	accounts map[string]*polledAccount
}

// polledAccount is what the clients have that count under one account.
type polledAccount struct {
	clients int
	used    int
	groups  map[*localityGroup]int
}

// polledList is what clients share that ask for the same.
type polledList struct {
	group *localityGroup
	key   pollKey // without what tells clients apart
}

// polledHolders are the clients that share a list: how many, and the account of the first,
// which the list counts for.
type polledHolders struct {
	clients int
	account *polledAccount // nil = none; kept here, since the account may be forgotten and begin again meanwhile
}

func listOf(g *localityGroup, key pollKey) polledList {
	return polledList{g, pollKey{url: key.url, as: key.as, names: key.names}}
}

// take counts a client, unless it is beyond a bound: that of memory, or half of
// the localities, so that the others remain for clients with streams. One account
// gets half of each, and a quarter of the memory: it leaves nothing open that would have
// to be paid for.
func (b *pollBudget) take(g *localityGroup, key pollKey, account string, o *Options) error {
	list, own, shared := listOf(g, key), ownCost(key), 0
	if b.lists[list] == nil {
		shared = sharedCost(key)
	}
	most, have := (o.MaxLocalities+1)/2, b.accounts[account]
	switch {
	case have != nil && 2*have.clients >= o.MaxStreams:
		return fmt.Errorf("%w clients that poll from one address: %d are known", errFull, have.clients)
	case have != nil && have.groups[g] == 0 && len(have.groups) >= (most+1)/2:
		return fmt.Errorf("%w localities of clients that poll from one address: %d are served", errFull, len(have.groups))
	case b.groups[g] == 0 && len(b.groups) >= most:
		return fmt.Errorf("%w localities of clients that poll: %d are served", errFull, len(b.groups))
	}
	if err := b.remember(own+shared, account, o); err != nil {
		return err
	}
	if b.lists == nil {
		b.lists, b.groups, b.accounts = map[polledList]*polledHolders{}, map[*localityGroup]int{}, map[string]*polledAccount{}
	}
	if account != "" {
		if have == nil {
			have = &polledAccount{groups: map[*localityGroup]int{}}
			b.accounts[account] = have
		}
		have.clients++
		have.groups[g]++
	}
	if b.lists[list] == nil {
		b.lists[list] = &polledHolders{account: have}
	}
	b.lists[list].clients++
	b.add(own+shared, have)
	b.groups[g]++
	return nil
}

// remember reports whether there is memory for so many bytes more.
func (b *pollBudget) remember(bytes int, account string, o *Options) error {
	of := 0
	if have := b.accounts[account]; have != nil {
		of = have.used
	}
	if account != "" && of+bytes > o.PollMemory/accountPolls {
		return fmt.Errorf("%w names that clients poll for from one address: they take %d bytes", errFull, of)
	}
	if b.used+bytes > o.PollMemory {
		return fmt.Errorf("%w names that clients poll for: they take %d bytes", errFull, b.used)
	}
	return nil
}

// add counts bytes for an account, nil = none; below 0 = they are given back. What others still share
// when the last client of an account is forgotten no longer counts for it.
func (b *pollBudget) add(bytes int, account *polledAccount) {
	b.used += bytes
	if account != nil {
		account.used += bytes
	}
}

// fullest returns the most that one account uses.
func (b *pollBudget) fullest() (used int) {
	for _, a := range b.accounts {
		used = max(used, a.used)
	}
	return used
}

// release takes back what take has counted.
func (b *pollBudget) release(g *localityGroup, key pollKey, account string) {
	have := b.accounts[account]
	b.add(-ownCost(key), have)
	list := listOf(g, key)
	if holders := b.lists[list]; holders != nil {
		if holders.clients--; holders.clients == 0 {
			delete(b.lists, list)
			b.add(-sharedCost(key), holders.account)
		}
	}
	if have != nil {
		if have.groups[g]--; have.groups[g] == 0 {
			delete(have.groups, g)
		}
		if have.clients--; have.clients == 0 {
			delete(b.accounts, account)
		}
	}
	if b.groups[g]--; b.groups[g] == 0 {
		delete(b.groups, g)
	}
}

func ownCost(key pollKey) int {
	return pollerCost + len(key.id) + sentCost*len(key.names.names)
}

func sharedCost(key pollKey) int {
	return len(key.names.raw) + nameCost*len(key.names.names)
}
