// This file is empty. Because the package has an assembly file, Go accepts the
// declarations without bodies in queue_sequence.go.
