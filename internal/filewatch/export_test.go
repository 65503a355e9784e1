package filewatch

// ReadWithin is [Read] with a limit of its own for pipes.
var ReadWithin = readWithin
