import './style.css'
import { word } from './word.js'

const app = document.getElementById('app')
app.textContent = word
localStorage.setItem('kept', 'yes')
document.cookie = 'mine=1'

import.meta.hot.accept('./word.js', (changed) => { app.textContent = changed.word })
