package processtree_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/processtree"
)

// A program is run until its end or that of a context. What it left in the background
// has ended too when Wait returns.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	tree, err := processtree.Start(processtree.Program{
		Argv: []string{"sh", "-c", "sleep 1000 & echo hello; exit 3"}, Env: []string{"PATH=/usr/bin:/bin"}, Stdout: os.Stdout,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer context.AfterFunc(ctx, tree.Kill)()
	exit, err := tree.Wait()
	fmt.Println(exit.Code, err)
	// Output:
	// hello
	// 3 <nil>
}
