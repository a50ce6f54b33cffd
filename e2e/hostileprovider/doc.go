// Command hostileprovider is a provider plugin that does to the broker whatever a
// plugin can do. It has no SDK: it speaks HTTP/2 and writes the frames of gRPC by
// itself, so that nothing keeps it from writing wrong ones.
//
// What it does stands in a file beside the executable, the executable's name with
// ".plan" behind it: a JSON object that says for a call which behaviour, such as
//
//	{"Execute": "length_4g", "Health": "hang"}
//
// The file is read at each call, so a plugin that behaved well can begin not to. A
// call that it does not name is answered well. The name "start" stands for what
// happens before the plugin serves.
//
// Where the behaviours are: those of a start in starts.go, those of any call in
// calls.go (deaths and silence), frames.go (bytes that are no gRPC) and errors.go,
// those of one call in answers.go and executions.go. The tests beside them name
// each one with what must come of it.
package main
