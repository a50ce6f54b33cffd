package hostile

import (
	"fmt"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/docs/markdown"
)

// Page is the corpus as the page on security shows it.
func Page(programs []Program) string {
	var b strings.Builder
	count := func(is func(Program) bool) (n int) {
		for _, p := range programs {
			if is(p) {
				n++
			}
		}
		return n
	}
	language := func(name string) int { return count(func(p Program) bool { return p.Language == name }) }
	fmt.Fprintf(&b, "%d programs: %d in Python, %d in bash, %d in JavaScript. %d of them look for what another execution or session left or does.\n",
		len(programs), language("python"), language("bash"), language("javascript"), count(func(p Program) bool { return len(p.Steps) > 1 }))
	for _, theme := range Themes {
		of := func(p Program) bool { return p.Theme == theme.Name }
		fmt.Fprintf(&b, "\n<details>\n<summary>%s: %d programs</summary>\n\n| program | what must happen |\n| --- | --- |\n", theme.Title, count(of))
		for _, p := range programs {
			if of(p) {
				fmt.Fprintf(&b, "| `%s` | %s |\n", p.Name, markdown.Cell(p.Must))
			}
		}
		b.WriteString("\n</details>\n")
	}
	return b.String()
}
