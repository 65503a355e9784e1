// Command steady holds a real `isobar serve`, in a process of its own, under
// the steady load of a fleet, and measures what that costs: processor, memory,
// garbage collection, and what clients see, also when all of them come back at
// once.
//
// The fleet has 1,000 services of 100 endpoints in 10 zones. Each of 5,000
// clients subscribes to 15 services on ADS and reports load on them over LRS;
// 100 checkers probe the endpoints of every tenth service, three checkers each,
// and report over HDS. In each interval of 5 s, 1% of the services change their
// demand by a third, and 1% exchange an endpoint for one at another address,
// over the admin API, one service after the other.
package main
