export const word = 'first'
