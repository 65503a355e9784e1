// Command mutants asks whether the tests would notice. It knows a list of
// bugs that this code could have, each a small change of one file; for each it
// runs the tests that should fail with it.
//
//	go run ./test/mutants            all of them
//	go run ./test/mutants -run load  those whose name matches
//
// The bugs are in bugs/*.yaml. They are applied by go's -overlay, so that the
// working tree stays as it is. A bug that no test notices is a test that is
// missing; a change that nobody could notice does not belong in the list.
package main
