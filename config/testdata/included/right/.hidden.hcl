this is = no configuration {
